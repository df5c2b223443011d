package flawed

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// channel is a verbs.CompChannel that tells of our queues.
type channel struct {
	verbs.CompChannel
	d *device
}

func (c *channel) sound() verbs.CompChannel { return c.CompChannel }

// CreateCompChannel makes a completion channel.
func (d *device) CreateCompChannel() (verbs.CompChannel, error) {
	c, err := d.Context.CreateCompChannel()
	if err != nil {
		return nil, err
	}
	return &channel{c, d}, nil
}

// Wait returns the next queue that has an event.
func (c *channel) Wait(timeout time.Duration) (verbs.CQ, error) {
	q, err := c.CompChannel.Wait(timeout)
	return ours(c.d, q), err
}

// queue is a verbs.CQ.
type queue struct {
	verbs.CQ
	d        *device
	pollOnly bool

	mu    sync.Mutex
	ready []verbs.WC // FlushReversed: taken from the device and not polled yet
}

func (c *queue) sound() verbs.CQ { return c.CQ }

// CreateCQ makes a completion queue.
func (d *device) CreateCQ(in verbs.CQInit) (verbs.CQ, error) {
	c := &queue{d: d, pollOnly: in.Channel == nil}
	in.Channel = its(in.Channel)
	var err error
	if c.CQ, err = d.Context.CreateCQ(in); err != nil {
		return nil, err
	}
	d.keep(c.CQ, c)
	return c, nil
}

// Arm asks for an event.
func (c *queue) Arm(solicitedOnly bool) error {
	if c.pollOnly && c.d.q.ArmsWithoutChannel {
		return nil
	}
	return c.CQ.Arm(solicitedOnly)
}

// Close removes the queue.
func (c *queue) Close() error {
	err := c.CQ.Close()
	if err == nil {
		c.d.drop(c.CQ)
	}
	return err
}

// Poll moves completions into the slice.
func (c *queue) Poll(into []verbs.WC) (int, error) {
	poll := c.CQ.Poll
	if c.d.q.FlushReversed {
		poll = c.pollReversed
	}
	n, err := poll(into)
	if c.d.q.SparseCompletions {
		for i := range into[:n] {
			empty(&into[i])
		}
	}
	return n, err
}

// empty takes from a completion what SparseCompletions leaves out.
func empty(wc *verbs.WC) {
	switch {
	case wc.Status != verbs.WCSuccess:
		wc.WRID, wc.QPN = 0, 0
	case wc.Opcode == verbs.WCOpRDMARead, wc.Opcode == verbs.WCOpRecvRDMAWithImm:
		wc.ByteLen = 0
	}
	if wc.Flags&verbs.WCWithGRH != 0 {
		wc.SrcQP = 0
	}
	wc.Flags &^= verbs.WCWithInv
	wc.InvalidatedRKey = 0
}

// pollReversed takes all that the device has, so that it sees whole what failed
// together, and turns the errors of each queue pair round: the last to be flushed
// comes first, and what tells the cause last.
func (c *queue) pollReversed(into []verbs.WC) (int, error) {
	var all []verbs.WC
	var some [64]verbs.WC
	n, err := c.CQ.Poll(some[:])
	for ; n > 0; n, err = c.CQ.Poll(some[:]) {
		if all = append(all, some[:n]...); n < len(some) {
			break
		}
	}
	for i := 0; i < len(all); {
		end := i + 1
		for end < len(all) && failedWith(&all[end], &all[i]) {
			end++
		}
		slices.Reverse(all[i:end])
		i = end
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ready = append(c.ready, all...)
	n = copy(into, c.ready)
	c.ready = slices.Delete(c.ready, 0, n)
	if n > 0 {
		err = nil
	}
	return n, err
}

// failedWith reports whether two completions are errors of one queue pair.
func failedWith(a, b *verbs.WC) bool {
	return a.Status != verbs.WCSuccess && b.Status != verbs.WCSuccess && a.QPN == b.QPN
}

// sharedQueue is a verbs.SRQ.
type sharedQueue struct {
	verbs.SRQ
	d *device
}

func (s *sharedQueue) sound() verbs.SRQ { return s.SRQ }

// CreateSRQ makes a shared receive queue.
func (d *device) CreateSRQ(in verbs.SRQInit) (verbs.SRQ, error) {
	in.CQ = its(in.CQ)
	s, err := d.Context.CreateSRQ(in)
	if err != nil {
		return nil, err
	}
	f := &sharedQueue{s, d}
	d.keep(s, f)
	return f, nil
}

// Modify changes size or limit. What the device refuses, SRQUnchecked says to have
// done.
func (s *sharedQueue) Modify(a verbs.SRQAttr, mask verbs.SRQAttrMask) error {
	err := s.SRQ.Modify(a, mask)
	if s.d.q.SRQUnchecked && errors.Is(err, verbs.ErrInvalid) {
		return nil
	}
	return err
}

// Close removes the queue.
func (s *sharedQueue) Close() error {
	err := s.SRQ.Close()
	if err == nil {
		s.d.drop(s.SRQ)
	}
	return err
}
