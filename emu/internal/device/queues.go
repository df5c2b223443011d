package device

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/drive"
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/verbs"
)

// CompChannel implements verbs.CompChannel.
type CompChannel struct {
	Object
	cond  drive.Cond
	ready []*CQ // CQs with an event that was not read yet
	cqs   int   // number of CQs on the channel
}

// CreateCompChannel creates a completion channel.
func (d *Device) CreateCompChannel() (verbs.CompChannel, error) {
	c := &CompChannel{Object: Object{D: d}}
	return HandleOrNil[verbs.CompChannel](c, d.Control("create_comp_channel", func() error {
		c.cond = d.drv.NewCond(drive.WaitReason("completion event of " + d.name))
		return nil
	}))
}

// Wait implements verbs.CompChannel: it waits for a completion event, and returns its CQ.
func (c *CompChannel) Wait(timeout time.Duration) (verbs.CQ, error) {
	const op = "get_cq_event"
	if err := c.Enter(op, drive.CallWait); err != nil {
		return nil, err
	}
	// Unlock without Pump: delayed acknowledgements wait for the application's answer.
	defer c.D.drv.Unlock()
	err := c.D.Wait(op, c.cond, timeout, func() bool { return len(c.ready) > 0 || c.closed })
	if err != nil {
		return nil, err
	}
	if c.closed {
		return nil, c.D.opError(op, verbs.ErrClosed)
	}
	q := c.ready[0]
	c.ready = append(c.ready[:0], c.ready[1:]...)
	return q, nil
}

// Close destroys the channel and wakes its waiters. It fails while a CQ uses the channel.
func (c *CompChannel) Close() error {
	return c.Destroy("destroy_comp_channel", func() error {
		if c.cqs > 0 {
			return c.D.opError("destroy_comp_channel", fmt.Errorf("%w: %d completion queues use the channel", verbs.ErrBusy, c.cqs))
		}
		c.ready = nil
		c.cond.Notify()
		return nil
	})
}

// CQ implements verbs.CQ.
type CQ struct {
	Object
	Q       *nic.CQ
	channel *CompChannel
	armed   bool // ReqNotify was called since the last poll
}

// CreateCQ implements verbs.Context. The CQ counts as a user of its channel, if it has one.
func (d *Device) CreateCQ(in verbs.CQInit) (verbs.CQ, error) {
	c := &CQ{Object: Object{D: d}}
	const op = "create_cq"
	return HandleOrNil[verbs.CQ](c, d.Control(op, func() (err error) {
		if err = CheckOptionalHandle(d, op, "completion channel", in.Channel, func(ch *CompChannel) { c.channel = ch }); err != nil {
			return err
		}
		if c.Q, err = d.base.CreateCQ(in.Depth); err == nil {
			c.Q.Owner = c
			if c.channel != nil {
				c.channel.cqs++
			}
		}
		return err
	}))
}

// deliverEvent passes a completion event to the completion channel, if the queue has one.
func (c *CQ) deliverEvent() {
	if c.channel != nil && !c.channel.closed {
		c.channel.ready = append(c.channel.ready, c)
		c.channel.cond.Notify()
	}
}

// Poll implements verbs.CQ. If the queue is empty, Poll has the driver receive packets, polls the
// queue again, and reports to the driver whether that found completions; if not, it may yield the
// processor. It does none of this if ReqNotify was called since the last Poll: the application is
// about to wait for an event.
func (c *CQ) Poll(into []verbs.WC) (int, error) {
	if err := c.Enter("poll_cq", drive.CallPoll); err != nil {
		return 0, err
	}
	n, err := c.Q.Poll(into)
	willWait := c.armed // the driver receives packets during the wait
	c.armed = false
	if n == 0 && err == nil && !willWait {
		c.D.drv.Progress()
		if n, err = c.Q.Poll(into); n > 0 {
			c.D.drv.PollFound()
		} else {
			c.D.drv.PollEmpty()
		}
	}
	if n > 0 {
		c.D.placeAll()
	}
	c.D.drv.Unlock()
	if n == 0 && !willWait {
		c.D.drv.Yield()
	}
	return n, err
}

// ReqNotify implements verbs.CQ.
func (c *CQ) ReqNotify(solicitedOnly bool) error {
	if c.channel == nil {
		return &verbs.OpError{Op: "req_notify_cq", Err: fmt.Errorf("%w: the queue has no completion channel", verbs.ErrInvalid)}
	}
	// Not a control call, which would send delayed acknowledgements: applications arm the
	// CQ for every message.
	if err := c.Enter("req_notify_cq", drive.CallPoll); err != nil {
		return err
	}
	c.Q.ReqNotify(solicitedOnly)
	c.armed = true
	c.D.drv.Unlock()
	return nil
}

// Depth is the capacity in completions.
func (c *CQ) Depth() int {
	c.D.drv.Lock(drive.CallWait)
	defer c.D.drv.Unlock()
	return c.Q.Depth()
}

// Resize changes the depth.
func (c *CQ) Resize(depth int) error {
	return c.Control("resize_cq", func() error { return c.Q.Resize(depth) })
}

// Close destroys the queue.
func (c *CQ) Close() error {
	return c.Destroy("destroy_cq", func() error {
		err := c.D.base.DestroyCQ(c.Q)
		if err == nil && c.channel != nil {
			c.channel.cqs--
			c.channel.ready = slices.DeleteFunc(c.channel.ready, func(q *CQ) bool { return q == c })
		}
		return err
	})
}

// SRQ implements verbs.SRQ.
type SRQ struct {
	Object
	S *nic.SRQ
}

// CreateSRQ creates a shared receive queue.
func (d *Device) CreateSRQ(in verbs.SRQInit) (verbs.SRQ, error) {
	if in.Type == verbs.SRQXRC && !d.hooks.XRC {
		return nil, d.Unsupported("create_srq", "XRC")
	}
	s := &SRQ{Object: Object{D: d}}
	cfg := nic.SRQConfig{Type: in.Type, MaxWR: in.MaxWR, MaxSGE: in.MaxSGE, Limit: in.Limit}
	const op = "create_srq"
	return HandleOrNil[verbs.SRQ](s, d.Control(op, func() (err error) {
		if err = cmp.Or(
			CheckOptionalHandle(d, op, "PD", in.PD, func(p *PD) { cfg.PD = p.ID }),
			CheckOptionalHandle(d, op, "XRC domain", in.XRCD, func(x *XRCD) { cfg.XRCD = x.X }),
			CheckOptionalHandle(d, op, "CQ", in.CQ, func(c *CQ) { cfg.CQ = c.Q }),
		); err != nil {
			return err
		}
		if s.S, err = d.base.CreateSRQ(cfg); err == nil {
			s.S.Owner = s
		}
		return err
	}))
}

// PostRecv posts receives. Unlike QP.PostRecv, it sends all pending packets when it returns.
func (s *SRQ) PostRecv(wrs []verbs.RecvWR) (int, error) {
	if err := s.Enter("post_srq_recv", drive.CallPost); err != nil {
		return 0, err
	}
	defer s.D.Leave()
	for i := range wrs {
		if err := s.S.PostRecv(&wrs[i]); err != nil {
			return i, err
		}
	}
	return len(wrs), nil
}

// Modify changes size or limit.
func (s *SRQ) Modify(a verbs.SRQAttr, mask verbs.SRQAttrMask) error {
	return s.Control("modify_srq", func() error { return s.S.Modify(a, mask) })
}

// Query returns size and limit.
func (s *SRQ) Query() (a verbs.SRQAttr, err error) {
	err = s.Control("query_srq", func() error {
		a = s.S.Query()
		return nil
	})
	return a, err
}

// Number is the SRQ number that XRC requests carry.
func (s *SRQ) Number() uint32 { return s.S.Num() }

// Close destroys the queue.
func (s *SRQ) Close() error {
	return s.Destroy("destroy_srq", func() error { return s.D.base.DestroySRQ(s.S) })
}
