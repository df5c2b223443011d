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
	tagAllgather
	tagAlltoall
	tagIbarrier

	maxIbarriers = 1 << 16

	// tagBroken is that of the word of a rank that has given up.
	tagFailed = TagMax
)

// anything is the envelope of whatever comes in a context.
func anyMessage(context uint32) match.Envelope {
	return match.Envelope{Context: context, Source: match.Any, Tag: match.Any}
}

// Barrier returns when all ranks have called it.
func (c *Comm) Barrier() error {
	if err := c.check(); err != nil {
		return c.raise("Barrier", err)
	}
	c.k.lock()
	err := c.barrier()
	c.k.unlock()
	return c.raise("Barrier", err)
}

// meet is a barrier by dissemination: in round i everybody tells whoever is 2^i ranks
// on, and so has heard of twice as many as before. The lock is held.
func (c *Comm) barrier() error {
	for step := 1; step < c.size; step *= 2 {
		to, from := (c.me+step)%c.size, (c.me-step+c.size)%c.size
		if err := c.collectiveSendrecv(nil, to, nil, from, tagBarrier); err != nil {
			return err
		}
	}
	return nil
}

// schedule is a barrier that goes on whenever its rank progresses.
type ibarrier struct {
	c             *Comm
	tag, distance int
	send, recv    p2p.Request
	done          bool
	err           error
}

// Ibarrier begins a barrier.
func (c *Comm) Ibarrier() (*Request, error) {
	if err := c.check(); err != nil {
		return nil, c.raise("Ibarrier", err)
	}
	s := &ibarrier{c: c, tag: tagIbarrier + c.ibarriers%maxIbarriers, distance: 1}
	c.k.lock()
	c.ibarriers++
	if s.startRound(); !s.done {
		c.k.ibarriers = append(c.k.ibarriers, s)
	}
	c.k.unlock()
	return &Request{c: c, call: "Ibarrier", active: true, kind: ibarrierRequest, ibarrier: s}, nil
}

// begin starts a round, if there is one to come.
func (s *ibarrier) startRound() {
	c := s.c
	if s.done = s.distance >= c.size; s.done {
		return
	}
	c.startRecv(&s.recv, c.context|collective, nil, (c.me-s.distance+c.size)%c.size, s.tag)
	c.startSend(&s.send, c.context|collective, nil, (c.me+s.distance)%c.size, s.tag, p2p.Standard)
}

// advance goes on with what is under way, and reports whether it could.
func (k *rank) advanceSchedules() (moved bool) {
	left := k.ibarriers[:0]
	for _, s := range k.ibarriers {
		for !s.done && s.recv.Done() && s.send.Done() {
			moved = true
			if s.err = s.recv.Err; s.err == nil {
				s.err = s.send.Err
			}
			if s.err == nil && s.recv.Cancelled {
				s.err = ErrFinalized // not everybody has called it, and nobody will
			}
			if s.done = s.err != nil; s.done {
				s.c.announceFailure()
				break
			}
			s.distance *= 2
			s.startRound()
		}
		if !s.done {
			left = append(left, s)
		}
	}
	clear(k.ibarriers[len(left):])
	k.ibarriers = left
	return moved
}
