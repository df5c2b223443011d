package mpi

import (
	"cmp"

	"github.com/fabrictest/fabrictest/mpi/p2p"
)

// Tags of collective messages. All ranks call the blocking collectives in the same order,
// so one tag per kind suffices. Each Ibarrier has a separate tag, as long as fewer than
// maxIbarriers are active at once.
const (
	tagBarrier = iota
	tagBcast
	tagReduce
	tagAllgather
	tagAlltoall
	tagIbarrier

	maxIbarriers = 1 << 16

	// tagFailed marks the announcement that collectives on a communicator have failed.
	tagFailed = TagMax
)

// Barrier blocks until all ranks have called it.
func (c *Comm) Barrier() error {
	return c.locked("Barrier", c.check(), c.barrier)
}

// barrier is a dissemination barrier: in round i each rank notifies the rank 2^i after it.
// The caller holds the lock.
func (c *Comm) barrier() error {
	for step := 1; step < c.size; step *= 2 {
		to, from := (c.me+step)%c.size, (c.me-step+c.size)%c.size
		if err := c.collectiveSendrecv(nil, to, nil, from, tagBarrier); err != nil {
			return err
		}
	}
	return nil
}

// ibarrier is a nonblocking dissemination barrier. The rank's progress function advances it.
type ibarrier struct {
	c             *Comm
	tag, distance int
	send, recv    p2p.Request
	done          bool
	err           error
}

// Ibarrier starts a nonblocking barrier. Barriers that are active at once have different tags.
func (c *Comm) Ibarrier() (*Request, error) {
	if err := c.check(); err != nil {
		return nil, c.raise("Ibarrier", err)
	}
	c.rank.lock()
	s := &ibarrier{c: c, tag: tagIbarrier + c.ibarriers%maxIbarriers, distance: 1}
	c.ibarriers++
	if s.startRound(); !s.done {
		c.rank.ibarriers = append(c.rank.ibarriers, s)
	}
	c.rank.unlock()
	return &Request{c: c, call: "Ibarrier", active: true, kind: ibarrierRequest, ibarrier: s}, nil
}

// startRound starts a round: it receives from the rank s.distance before this one, and sends to the
// rank s.distance after it. If s.distance is not less than the number of ranks, it marks the
// barrier done.
func (s *ibarrier) startRound() {
	c := s.c
	if s.done = s.distance >= c.size; s.done {
		return
	}
	c.startRecv(&s.recv, c.context|collective, message{nil, (c.me - s.distance + c.size) % c.size, s.tag})
	c.startSend(&s.send, c.context|collective, message{nil, (c.me + s.distance) % c.size, s.tag}, p2p.Standard)
}

// advanceIbarriers advances the active nonblocking barriers and reports whether any progressed. If
// a barrier fails, it notifies the other ranks, which might wait for this one.
func (k *rank) advanceIbarriers() (progressed bool) {
	active := k.ibarriers[:0]
	for _, s := range k.ibarriers {
		for !s.done && s.recv.Done() && s.send.Done() {
			progressed = true
			s.err = cmp.Or(s.recv.Err, s.send.Err)
			if s.err == nil && s.recv.Cancelled {
				s.err = ErrFinalized // the program ended before all ranks called Ibarrier
			}
			if s.done = s.err != nil; s.done {
				s.c.announceFailure()
				break
			}
			s.distance *= 2
			s.startRound()
		}
		if !s.done {
			active = append(active, s)
		}
	}
	clear(k.ibarriers[len(active):])
	k.ibarriers = active
	return progressed
}
