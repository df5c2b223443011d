package nic

import (
	"slices"

	"github.com/fabrictest/fabrictest/verbs"
)

// CQ is a completion queue with a fixed number of entries.
type CQ struct {
	nic     *Base
	ring    []verbs.WC // has room for depth entries once so many have been queued
	depth   int
	head    int // oldest entry
	count   int
	users   int // number of QPs and SRQs that use the CQ
	arm     armState
	overrun bool
	gone    bool
	// Owner is for use by the driver.
	Owner any
}

// firstCQEs is the number of completions for which a CQ has room at first; see firstRing.
const firstCQEs = 64

type armState uint8

const (
	armNone armState = iota
	armSolicited
	armNext
)

// CreateCQ creates a completion queue.
func (b *Base) CreateCQ(depth int) (*CQ, error) {
	if depth < 1 || depth > b.Limits.CQE {
		return nil, OpError("create_cq", "", "%w: depth %d is not in 1..%d", verbs.ErrInvalid, depth, b.Limits.CQE)
	}
	if b.cqs >= b.Limits.CQs {
		return nil, OpError("create_cq", "", "%w: %d CQs", verbs.ErrNoMemory, b.cqs)
	}
	b.cqs++
	return &CQ{nic: b, ring: make([]verbs.WC, min(depth, firstCQEs)), depth: depth}, nil
}

// DestroyCQ destroys a CQ. It fails while queues use it.
func (b *Base) DestroyCQ(c *CQ) error {
	if c.gone {
		return OpError("destroy_cq", "", "%w: it is gone already", verbs.ErrInvalid)
	}
	if c.users > 0 {
		return OpError("destroy_cq", "", "%w by %d queues", verbs.ErrBusy, c.users)
	}
	c.gone = true
	b.cqs--
	b.DropEvents(func(e *Event) bool { return e.CQ == c })
	b.fired = slices.DeleteFunc(b.fired, func(f *CQ) bool { return f == c })
	return nil
}

// Use adds n to the number of queues that use the CQ.
func (c *CQ) Use(n int) { c.users += n }

// Gone reports whether the CQ was destroyed.
func (c *CQ) Gone() bool { return c.gone }

// Depth returns the number of entries.
func (c *CQ) Depth() int { return c.depth }

// Poll moves the oldest completions to the slice. After an overrun, it fails once all are polled.
func (c *CQ) Poll(into []verbs.WC) (int, error) {
	if c.overrun && c.count == 0 {
		return 0, verbs.ErrOverrun
	}
	n := min(len(into), c.count)
	for i := range n {
		into[i] = c.ring[c.head]
		if c.head++; c.head == len(c.ring) {
			c.head = 0
		}
	}
	c.count -= n
	return n, nil
}

// ReqNotify requests an event for the next completion, or for the next solicited one. The latter
// does not replace a request for any completion.
func (c *CQ) ReqNotify(solicitedOnly bool) {
	switch {
	case !solicitedOnly:
		c.arm = armNext
	case c.arm == armNone:
		c.arm = armSolicited
	}
}

// Resize changes the number of entries. The queued completions must fit.
func (c *CQ) Resize(depth int) error {
	if depth < 1 || depth > c.nic.Limits.CQE || depth < c.count {
		return OpError("resize_cq", "", "%w: depth %d with %d completions queued, limit %d", verbs.ErrInvalid, depth, c.count, c.nic.Limits.CQE)
	}
	c.depth = depth
	c.setRing(min(depth, max(c.count, firstCQEs)))
	return nil
}

// setRing gives the ring room for n entries, at least those that are queued.
func (c *CQ) setRing(n int) {
	ring := make([]verbs.WC, n)
	for i := range c.count {
		ring[i] = c.ring[(c.head+i)%len(c.ring)]
	}
	c.ring, c.head = ring, 0
}

// Push adds a completion. If the CQ is full or was overrun before, it returns false, and the QP
// must fail; the first time, or with RepeatOverrun every time, it also reports EventCQErr.
func (c *CQ) Push(wc *verbs.WC, solicited bool) bool {
	if c.gone {
		// The XRC SRQ of an unfinished message was destroyed, then this CQ: drop the completion.
		return true
	}
	if c.count == c.depth || c.overrun {
		if !c.overrun || c.nic.Policy.RepeatOverrun {
			c.overrun = true
			c.nic.CQOverruns++
			c.nic.Report(Event{Type: verbs.EventCQErr, CQ: c})
		}
		return false
	}
	if c.count == len(c.ring) {
		c.setRing(min(c.depth, 2*c.count))
	}
	tail := c.head + c.count
	if tail >= len(c.ring) {
		tail -= len(c.ring)
	}
	c.ring[tail] = *wc
	c.count++
	if c.arm == armNext || c.arm == armSolicited && (solicited || wc.Status != verbs.WCSuccess) {
		c.arm = armNone
		c.nic.fired = append(c.nic.fired, c)
	}
	return true
}
