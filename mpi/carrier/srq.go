package carrier

import (
	"fmt"

	"github.com/fabrictest/fabrictest/mpi/memory"
	"github.com/fabrictest/fabrictest/verbs"
)

// sharedReceives is the shared receive queue of a rail. Receives are posted again in
// batches, or at once below the low watermark. verbs.EventSRQLimitReached is not used:
// every packet generates a completion, which wakes the rank anyway.
type sharedReceives struct {
	rail     *rail
	queue    verbs.SRQ
	recv     recvQueue
	pool     *memory.Pool
	posted   int
	capacity int // depth of the queue
}

// createSRQ creates the shared receive queue of the rail, and posts its first receives. Without
// RNR NAKs a message that finds no receive is fatal, so that the queue has room for the credits
// of all peers.
func (r *rail) createSRQ(cfg *Config) (err error) {
	s := &sharedReceives{rail: r, capacity: cfg.SharedReceives}
	if r.LacksRNR() {
		const connsPerPeer = 2 // a closed connection may remain while the next one exists
		s.capacity = max(s.capacity, min(connsPerPeer*(r.c.env.Size-1)*(cfg.Receives+reservedCredits), r.Attr.MaxSRQWR))
	}
	s.queue, err = r.Dev.CreateSRQ(verbs.SRQInit{PD: r.PD, MaxWR: s.capacity, MaxSGE: 1})
	if err != nil {
		return fmt.Errorf("shared receive queue of %d: %w", s.capacity, err)
	}
	r.srq = s
	s.recv = r.newRecvQueue(s.queue.PostRecv)
	s.pool = r.c.mem.NewPool(memory.SharedReceiveBuffers, cfg.PacketSize, cfg.SharedReceives)
	return s.add(cfg.SharedReceives)
}

// add posts n more receives.
func (s *sharedReceives) add(n int) error {
	if err := s.rail.ReserveCQEs(n); err != nil {
		return err
	}
	s.posted += n
	return s.recv.fill(s.pool, n)
}

// growFor posts a receive for every credit of a number of connections, on rails without
// RNR.
func (s *sharedReceives) growFor(connections int) error {
	c := s.rail.c
	need := connections * (c.cfg.Receives + reservedCredits)
	switch {
	case !s.rail.LacksRNR() || need <= s.posted:
		return nil
	case need > s.capacity:
		return fmt.Errorf("%d connections need %d shared receives, and the NIC has %d: use design %s, or fewer receives per connection", connections, need, s.capacity, SendRecv)
	}
	return s.add(need - s.posted)
}

// low reports whether the low watermark is reached.
func (s *sharedReceives) low() bool { return s.posted-s.recv.Staged() <= s.rail.c.cfg.LowWatermark }

// wantsRefill reports whether enough receives were used for a batch.
func (s *sharedReceives) wantsRefill() bool {
	const batches = 8
	return s.low() || s.recv.Staged() >= max(1, s.posted/batches)
}

// refill posts a batch of used receives.
func (s *sharedReceives) refill() {
	if !s.wantsRefill() {
		return
	}
	c := s.rail.c
	if s.low() {
		c.stats.LowWatermark++
	}
	if err := s.recv.Flush(); err != nil {
		c.failAll(err)
	}
}
