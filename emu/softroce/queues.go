package softroce

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/drive"
	"github.com/fabrictest/fabrictest/emu/softroce/engine"
	"github.com/fabrictest/fabrictest/verbs"
)

// completionChannel is a verbs.CompChannel.
type completionChannel struct {
	d      *Device
	gate   drive.Gate
	ready  []*completionQueue
	closed bool
}

// CreateCompChannel makes a completion channel.
func (d *Device) CreateCompChannel() (verbs.CompChannel, error) {
	c := &completionChannel{d: d}
	err := d.control("create_comp_channel", func() error {
		c.gate = d.drv.NewGate(drive.Name("completion event of " + d.cfg.Name))
		return nil
	})
	return c, err
}

func (c *completionChannel) Wait(timeout time.Duration) (verbs.CQ, error) {
	if err := c.d.enter(drive.CallWait); err != nil {
		return nil, &verbs.OpError{Op: "get_cq_event", Obj: c.d.cfg.Name, Err: err}
	}
	defer c.d.leave()
	err := c.d.wait("get_cq_event", c.gate, timeout, func() bool { return len(c.ready) > 0 || c.closed })
	if err != nil {
		return nil, err
	}
	if c.closed {
		return nil, &verbs.OpError{Op: "get_cq_event", Obj: c.d.cfg.Name, Err: verbs.ErrClosed}
	}
	q := c.ready[0]
	c.ready = append(c.ready[:0], c.ready[1:]...)
	return q, nil
}

func (c *completionChannel) Close() error {
	return c.d.control("destroy_comp_channel", func() error {
		c.closed = true
		c.gate.Notify()
		return nil
	})
}

// completionQueue is a verbs.CQ.
type completionQueue struct {
	d       *Device
	q       *engine.CQ
	channel *completionChannel
}

// CreateCQ makes a completion queue.
func (d *Device) CreateCQ(in verbs.CQInit) (verbs.CQ, error) {
	c := &completionQueue{d: d}
	if in.Channel != nil {
		ch, ok := in.Channel.(*completionChannel)
		if !ok || ch.d != d {
			return nil, foreign("create_cq", "completion channel")
		}
		c.channel = ch
	}
	err := d.control("create_cq", func() (err error) {
		if c.q, err = d.nic.CreateCQ(in.Depth); err == nil {
			c.q.Owner = c
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// foreign is the error for an object that another device made.
func foreign(op, what string) error {
	return &verbs.OpError{Op: op, Err: fmt.Errorf("%w: the %s belongs to another device", verbs.ErrInvalid, what)}
}

// fire delivers the event that the queue was armed for.
func (c *completionQueue) fire() {
	if c.channel != nil {
		c.channel.ready = append(c.channel.ready, c)
		c.channel.gate.Notify()
	}
}

func (c *completionQueue) Poll(into []verbs.WC) (int, error) {
	if err := c.d.enter(drive.CallPoll); err != nil {
		return 0, &verbs.OpError{Op: "poll_cq", Obj: c.d.cfg.Name, Err: err}
	}
	n, err := c.q.Poll(into)
	if n == 0 && err == nil {
		// Nothing yet: look at the network, as a program that polls expects.
		c.d.drv.Progress()
		if n, err = c.q.Poll(into); n > 0 {
			c.d.drv.Found()
		} else {
			c.d.drv.Nothing()
		}
	}
	c.d.drv.Unlock()
	if n == 0 {
		c.d.drv.Idle()
	}
	return n, err
}

func (c *completionQueue) Arm(solicitedOnly bool) error {
	if c.channel == nil {
		return &verbs.OpError{Op: "req_notify_cq", Err: fmt.Errorf("%w: the queue has no completion channel", verbs.ErrInvalid)}
	}
	return c.d.control("req_notify_cq", func() error {
		c.q.Arm(solicitedOnly)
		return nil
	})
}

func (c *completionQueue) Depth() int { return c.q.Depth() }

func (c *completionQueue) Resize(depth int) error {
	return c.d.control("resize_cq", func() error { return c.q.Resize(depth) })
}

func (c *completionQueue) Close() error {
	return c.d.control("destroy_cq", func() error { return c.d.nic.DestroyCQ(c.q) })
}

// sharedQueue is a verbs.SRQ.
type sharedQueue struct {
	d *Device
	s *engine.SRQ
}

// CreateSRQ makes a shared receive queue.
func (d *Device) CreateSRQ(in verbs.SRQInit) (verbs.SRQ, error) {
	s := &sharedQueue{d: d}
	cfg := engine.SRQConfig{Type: in.Type, MaxWR: in.MaxWR, MaxSGE: in.MaxSGE, Limit: in.Limit}
	if pd, ok := in.PD.(*protectionDomain); ok && pd.d == d {
		cfg.PD = pd.id
	}
	if x, ok := in.XRCD.(*xrcDomain); ok && x.d == d {
		cfg.XRCD = x.x
	}
	if cq, ok := in.CQ.(*completionQueue); ok && cq.d == d {
		cfg.CQ = cq.q
	}
	err := d.control("create_srq", func() (err error) {
		if s.s, err = d.nic.CreateSRQ(cfg); err == nil {
			s.s.Owner = s
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (s *sharedQueue) PostRecv(wrs []verbs.RecvWR) (int, error) {
	if err := s.d.enter(drive.CallPost); err != nil {
		return 0, &verbs.OpError{Op: "post_srq_recv", Obj: s.d.cfg.Name, Err: err}
	}
	defer s.d.leave()
	for i := range wrs {
		if err := s.s.PostRecv(&wrs[i]); err != nil {
			return i, err
		}
	}
	return len(wrs), nil
}

func (s *sharedQueue) Modify(a verbs.SRQAttr, mask verbs.SRQAttrMask) error {
	return s.d.control("modify_srq", func() error { return s.s.Modify(a, mask) })
}

func (s *sharedQueue) Query() (a verbs.SRQAttr, err error) {
	err = s.d.control("query_srq", func() error {
		a = s.s.Query()
		return nil
	})
	return a, err
}

func (s *sharedQueue) Number() uint32 { return s.s.Num() }

func (s *sharedQueue) Close() error {
	return s.d.control("destroy_srq", func() error { return s.d.nic.DestroySRQ(s.s) })
}
