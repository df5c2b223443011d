package verbcalls

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/fabrictest/fabrictest/verbs"
)

// queue is a verbs.CQ.
type queue struct {
	verbs.CQ
	handle
	channel  *channel // nil if it is polled only
	pollOnly bool
	arms     atomic.Int32 // ArmsCount: since the last event

	mu    sync.Mutex
	ready []verbs.WC // taken from the device and not polled yet
	again []verbs.WC // WCDoubled: to be polled a second time
	late  []verbs.WC // LocalInvNoop: of requests that the device has not seen
	seen  int        // completions that were polled
	holds []*pair    // InlineLate: who has requests that wait for a poll
}

func (c *queue) sound() verbs.CQ { return c.CQ }

// CreateCQ makes a completion queue, of another depth or armed.
func (d *device) CreateCQ(in verbs.CQInit) (verbs.CQ, error) {
	c := &queue{handle: handle{d: d}, channel: mine[*channel](d, in.Channel)}
	if in.Channel = its(in.Channel); d.q.ObjectsUnchecked && c.channel == nil {
		in.Channel = nil
	}
	c.pollOnly = in.Channel == nil
	in.Depth = d.depth(in.Depth)
	if d.q.CQDepthShort {
		in.Depth = (in.Depth + 1) / 2
	}
	var err error
	if c.CQ, err = makes(d, "CQs", func() (verbs.CQ, error) { return d.Context.CreateCQ(in) }); err != nil {
		return nil, err
	}
	d.keep(c.CQ, c)
	if c.channel != nil {
		c.channel.joined(c)
	}
	if d.q.ArmedFromBirth && !c.pollOnly {
		_ = c.CQ.ReqNotify(false) // unless the device was closed just now
	}
	return c, nil
}

// joined tells a channel of one of its queues.
func (c *channel) joined(q *queue) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.first == nil {
		c.first = q
	}
}

// depth is the depth that a program means: by CQDepthUnchecked one that can be.
func (d *device) depth(n int) int {
	if d.q.CQDepthUnchecked {
		return max(1, min(n, d.truth().MaxCQE))
	}
	return n
}

// ReqNotify asks for an event.
func (c *queue) ReqNotify(solicitedOnly bool) error {
	q := &c.d.q
	switch {
	case q.ArmsWithoutChannel && c.pollOnly, q.SolicitedMisses && solicitedOnly:
		return nil
	case q.ArmLooksBack && c.channel != nil && c.holding():
		c.channel.owe(c, 1)
		return nil
	}
	err := c.CQ.ReqNotify(solicitedOnly && !q.SolicitedIsAny)
	if err == nil {
		c.arms.Add(1)
	}
	return c.answers(err)
}

// holding reports whether completions wait to be polled.
func (c *queue) holding() bool {
	_ = c.fill() // what fails here fails when it is polled
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.ready) > 0
}

// Resize changes the depth, or does not.
func (c *queue) Resize(depth int) error {
	q := &c.d.q
	switch {
	case q.ClaimsAndRefuses:
		return notTheDevices("resize_cq")
	case q.ResizeNoop:
		return nil
	}
	err := c.CQ.Resize(c.d.depth(depth))
	if err == nil && q.ResizeLoses {
		_ = c.fill()
		c.discard()
	}
	if q.ResizeUnchecked && errors.Is(err, verbs.ErrInvalid) {
		return nil
	}
	return c.answers(err)
}

// Close removes the queue.
func (c *queue) Close() error { return c.close(c.CQ) }
