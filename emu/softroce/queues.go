package softroce

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/drive"
	"github.com/fabrictest/fabrictest/emu/softroce/engine"
	"github.com/fabrictest/fabrictest/verbs"
)

// completionChannel is a verbs.CompChannel.
type completionChannel struct {
	object
	gate  drive.Gate
	ready []*completionQueue
}

// CreateCompChannel makes a completion channel.
func (d *Device) CreateCompChannel() (verbs.CompChannel, error) {
	c := &completionChannel{object: object{d: d}}
	err := d.control("create_comp_channel", func() error {
		c.gate = d.drv.NewGate(drive.Name("completion event of " + d.cfg.Name))
		return nil
	})
	return c, err
}

func (c *completionChannel) Wait(timeout time.Duration) (verbs.CQ, error) {
	if err := c.enter("get_cq_event", drive.CallWait); err != nil {
		return nil, err
	}
	// Nothing was changed, so there is nothing to pump: what is owed to the peer
	// leaves with the program's answer, if it is one that answers.
	defer c.d.drv.Unlock()
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
	return c.close("destroy_comp_channel", func() error {
		c.ready = nil
		c.gate.Notify()
		return nil
	})
}

// completionQueue is a verbs.CQ.
type completionQueue struct {
	object
	q       *engine.CQ
	channel *completionChannel
	armed   bool // since the last poll
}

// CreateCQ makes a completion queue.
func (d *Device) CreateCQ(in verbs.CQInit) (verbs.CQ, error) {
	c := &completionQueue{object: object{d: d}}
	const op = "create_cq"
	err := d.control(op, func() (err error) {
		if err = ownIfGiven(d, op, "completion channel", in.Channel, func(ch *completionChannel) { c.channel = ch }); err != nil {
			return err
		}
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

// fire delivers the event that the queue was armed for.
func (c *completionQueue) fire() {
	if c.channel != nil && !c.channel.closed {
		c.channel.ready = append(c.channel.ready, c)
		c.channel.gate.Notify()
	}
}

func (c *completionQueue) Poll(into []verbs.WC) (int, error) {
	if err := c.enter("poll_cq", drive.CallPoll); err != nil {
		return 0, err
	}
	n, err := c.q.Poll(into)
	waits := c.armed // the last look before a wait: that will look at the network
	c.armed = false
	if n == 0 && err == nil && !waits {
		// Nothing yet: look at the network, as a program that polls expects.
		c.d.drv.Progress()
		if n, err = c.q.Poll(into); n > 0 {
			c.d.drv.Found()
		} else {
			c.d.drv.Nothing()
		}
	}
	c.d.drv.Unlock()
	if n == 0 && !waits {
		c.d.drv.Idle()
	}
	return n, err
}

func (c *completionQueue) Arm(solicitedOnly bool) error {
	if c.channel == nil {
		return &verbs.OpError{Op: "req_notify_cq", Err: fmt.Errorf("%w: the queue has no completion channel", verbs.ErrInvalid)}
	}
	// Not a control call, though it changes the queue: programs make it in every
	// turn, and the peer does not see it.
	if err := c.enter("req_notify_cq", drive.CallPoll); err != nil {
		return err
	}
	c.q.Arm(solicitedOnly)
	c.armed = true
	c.d.drv.Unlock()
	return nil
}

func (c *completionQueue) Depth() int {
	c.d.drv.Lock(drive.CallWait)
	defer c.d.drv.Unlock()
	return c.q.Depth()
}

func (c *completionQueue) Resize(depth int) error {
	return c.control("resize_cq", func() error { return c.q.Resize(depth) })
}

func (c *completionQueue) Close() error {
	return c.close("destroy_cq", func() error {
		err := c.d.nic.DestroyCQ(c.q)
		if err == nil && c.channel != nil {
			c.channel.ready = slices.DeleteFunc(c.channel.ready, func(q *completionQueue) bool { return q == c })
		}
		return err
	})
}

// sharedQueue is a verbs.SRQ.
type sharedQueue struct {
	object
	s *engine.SRQ
}

// CreateSRQ makes a shared receive queue.
func (d *Device) CreateSRQ(in verbs.SRQInit) (verbs.SRQ, error) {
	s := &sharedQueue{object: object{d: d}}
	cfg := engine.SRQConfig{Type: in.Type, MaxWR: in.MaxWR, MaxSGE: in.MaxSGE, Limit: in.Limit}
	const op = "create_srq"
	err := d.control(op, func() (err error) {
		if err = cmp.Or(
			ownIfGiven(d, op, "PD", in.PD, func(p *protectionDomain) { cfg.PD = p.id }),
			ownIfGiven(d, op, "XRC domain", in.XRCD, func(x *xrcDomain) { cfg.XRCD = x.x }),
			ownIfGiven(d, op, "CQ", in.CQ, func(c *completionQueue) { cfg.CQ = c.q }),
		); err != nil {
			return err
		}
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
	if err := s.enter("post_srq_recv", drive.CallPost); err != nil {
		return 0, err
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
	return s.control("modify_srq", func() error { return s.s.Modify(a, mask) })
}

func (s *sharedQueue) Query() (a verbs.SRQAttr, err error) {
	err = s.control("query_srq", func() error {
		a = s.s.Query()
		return nil
	})
	return a, err
}

func (s *sharedQueue) Number() uint32 { return s.s.Num() }

func (s *sharedQueue) Close() error {
	return s.close("destroy_srq", func() error { return s.d.nic.DestroySRQ(s.s) })
}
