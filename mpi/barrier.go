package mpi

import (
	"github.com/fabrictest/fabrictest/mpi/match"
	"github.com/fabrictest/fabrictest/mpi/p2p"
)

// Tags of collective operations. Each kind that waits has one of its own: all ranks
// call them in the same order, so that messages of the same kind are in order too.
// Those that do not wait have one each, as long as fewer than manyBarriers are under
// way at once.
const (
	tagBarrier = iota
	tagBcast
	tagReduce
	tagGather
	tagExchange
	tagIbarrier

	manyBarriers = 1 << 16

	// tagBroken is that of the word of a rank that has given up.
	tagBroken = TagMax
)

// anything is the envelope of whatever comes in a context.
func anything(context uint32) match.Envelope {
	return match.Envelope{Context: context, Source: match.Any, Tag: match.Any}
}

// Barrier returns when all ranks have called it.
func (c *Comm) Barrier() error {
	if err := c.usable(); err != nil {
		return c.raise("Barrier", err)
	}
	c.k.lock()
	err := c.meet()
	c.k.unlock()
	return c.raise("Barrier", err)
}

// meet is a barrier by dissemination: in round i everybody tells whoever is 2^i ranks
// on, and so has heard of twice as many as before. The lock is held.
func (c *Comm) meet() error {
	for step := 1; step < c.size; step *= 2 {
		to, from := (c.me+step)%c.size, (c.me-step+c.size)%c.size
		if err := c.swap(nil, to, nil, from, tagBarrier); err != nil {
			return err
		}
	}
	return nil
}

// schedule is a barrier that goes on whenever its rank progresses.
type schedule struct {
	c          *Comm
	tag, step  int
	send, recv p2p.Request
	done       bool
	err        error
}

// Ibarrier begins a barrier.
func (c *Comm) Ibarrier() (*Request, error) {
	if err := c.usable(); err != nil {
		return nil, c.raise("Ibarrier", err)
	}
	s := &schedule{c: c, tag: tagIbarrier + c.barriers%manyBarriers, step: 1}
	c.k.lock()
	c.barriers++
	if s.begin(); !s.done {
		c.k.schedules = append(c.k.schedules, s)
	}
	c.k.unlock()
	return &Request{c: c, call: "Ibarrier", active: true, kind: collected, schedule: s}, nil
}

// begin starts a round, if there is one to come.
func (s *schedule) begin() {
	c := s.c
	if s.done = s.step >= c.size; s.done {
		return
	}
	c.startRecv(&s.recv, c.context|collective, nil, (c.me-s.step+c.size)%c.size, s.tag)
	c.startSend(&s.send, c.context|collective, nil, (c.me+s.step)%c.size, s.tag, p2p.Standard)
}

// advance goes on with what is under way, and reports whether it could.
func (k *rank) advance() (moved bool) {
	left := k.schedules[:0]
	for _, s := range k.schedules {
		for !s.done && s.recv.Done() && s.send.Done() {
			moved = true
			if s.err = s.recv.Err; s.err == nil {
				s.err = s.send.Err
			}
			if s.err == nil && s.recv.Cancelled {
				s.err = ErrFinalized // not everybody has called it, and nobody will
			}
			if s.done = s.err != nil; s.done {
				s.c.giveUp()
				break
			}
			s.step *= 2
			s.begin()
		}
		if !s.done {
			left = append(left, s)
		}
	}
	clear(k.schedules[len(left):])
	k.schedules = left
	return moved
}
