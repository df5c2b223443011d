package engine

import (
	"slices"

	"github.com/fabrictest/fabrictest/verbs"
)

// CQ is a completion queue: a ring that never grows by itself.
type CQ struct {
	nic     *NIC
	ring    []verbs.WC
	head    int // oldest entry
	count   int
	users   int // QPs and SRQs that complete here
	arm     armState
	overrun bool
	gone    bool
	// Owner is the driver's to use.
	Owner any
}

type armState uint8

const (
	armNone armState = iota
	armSolicited
	armNext
)

// CreateCQ makes a completion queue.
func (n *NIC) CreateCQ(depth int) (*CQ, error) {
	if depth < 1 || depth > n.cfg.Limits.CQE {
		return nil, opError("create_cq", "", "%w: depth %d is not in 1..%d", verbs.ErrInvalid, depth, n.cfg.Limits.CQE)
	}
	if n.cqs >= n.cfg.Limits.CQs {
		return nil, opError("create_cq", "", "%w: %d CQs", verbs.ErrNoMemory, n.cqs)
	}
	n.cqs++
	return &CQ{nic: n, ring: make([]verbs.WC, depth)}, nil
}

// DestroyCQ removes a queue that nothing completes to.
func (n *NIC) DestroyCQ(c *CQ) error {
	if c.gone {
		return opError("destroy_cq", "", "%w: it is gone already", verbs.ErrInvalid)
	}
	if c.users > 0 {
		return opError("destroy_cq", "", "%w by %d queues", verbs.ErrBusy, c.users)
	}
	c.gone = true
	n.cqs--
	n.retract(func(e *Event) bool { return e.CQ == c })
	n.fired = slices.DeleteFunc(n.fired, func(f *CQ) bool { return f == c })
	return nil
}

// Depth is how many completions fit.
func (c *CQ) Depth() int { return len(c.ring) }

// Poll moves the oldest completions into into.
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

// Arm asks for one event: at the next completion, or at the next solicited one.
func (c *CQ) Arm(solicitedOnly bool) {
	switch {
	case !solicitedOnly:
		c.arm = armNext
	case c.arm == armNone:
		c.arm = armSolicited
	}
}

// Resize changes the depth. What is queued must still fit.
func (c *CQ) Resize(depth int) error {
	if depth < 1 || depth > c.nic.cfg.Limits.CQE || depth < c.count {
		return opError("resize_cq", "", "%w: depth %d with %d completions queued, limit %d", verbs.ErrInvalid, depth, c.count, c.nic.cfg.Limits.CQE)
	}
	ring := make([]verbs.WC, depth)
	for i := range c.count {
		ring[i] = c.ring[(c.head+i)%len(c.ring)]
	}
	c.ring, c.head = ring, 0
	return nil
}

// push appends a completion. It reports false, and marks the queue broken, when
// there is no room: the caller's QP must then fail.
func (c *CQ) push(wc *verbs.WC, solicited bool) bool {
	if c.gone {
		return true // of an XRC SRQ that went in the midst of a message: nobody waits
	}
	if c.count == len(c.ring) || c.overrun {
		if c.nic.q.CQOverrunSilent {
			return true
		}
		if !c.overrun || c.nic.q.CQErrRepeats {
			c.overrun = true
			c.nic.Count.CQOverrun++
			c.nic.report(Event{Type: verbs.EventCQErr, CQ: c})
		}
		return false
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
