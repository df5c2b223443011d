// Package insim is what programs of package workload need in a simulated world:
// a Control on which they park instead of blocking a thread. Like the world, it
// belongs to the one goroutine that runs it.
package insim

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/scenarios/workload"
	"github.com/fabrictest/fabrictest/verbs"
)

// Hub joins the ranks of a world. Messages take no time: they are no part of
// what is measured.
type Hub struct {
	// OnMark and OnSample, if not nil, are told what the ranks report, in the
	// order of the world's time.
	OnMark   func(rank int, at time.Duration, what string)
	OnSample func(rank int, s workload.Sample)

	world *sim.World
	ranks []seat

	round int        // of the barrier
	meet  sim.Signal // when a round is complete
}

// seat is one rank's place at the hub.
type seat struct {
	mail   [][][]byte // by sender
	moved  sim.Signal // something came, or somebody ended
	meets  bool       // it waits in the barrier
	ended  bool
	waitee int // the rank it waits for, for reports
}

// New returns a hub for ranks 0 to size-1.
func New(w *sim.World, size int) *Hub {
	h := &Hub{world: w, ranks: make([]seat, size)}
	for i := range h.ranks {
		h.ranks[i].mail = make([][][]byte, size)
	}
	return h
}

// Control returns what a rank is given.
func (h *Hub) Control(rank int) workload.Control { return &control{h, rank} }

// End says that a rank has ended, in whatever way: nobody waits for it any more.
// What it sent before is still delivered.
func (h *Hub) End(rank int) {
	h.ranks[rank].ended = true
	h.ranks[rank].meets = false
	for i := range h.ranks {
		h.ranks[i].moved.Broadcast()
	}
	h.tryMeet()
}

// tryMeet ends the round of the barrier if nobody is missing.
func (h *Hub) tryMeet() {
	for i := range h.ranks {
		if s := &h.ranks[i]; !s.ended && !s.meets {
			return
		}
	}
	for i := range h.ranks {
		h.ranks[i].meets = false
	}
	h.round++
	h.meet.Broadcast()
}

// control is one rank's view of the hub.
type control struct {
	h    *Hub
	rank int
}

func (c *control) seat() *seat { return &c.h.ranks[c.rank] }

// String says what a parked rank waits for.
func (s *seat) String() string { return fmt.Sprintf("a message of rank %d", s.waitee) }

func (c *control) check(rank int) error {
	if rank < 0 || rank >= len(c.h.ranks) {
		return fmt.Errorf("control: %w: rank %d of %d", verbs.ErrInvalid, rank, len(c.h.ranks))
	}
	return nil
}

func (c *control) Send(to int, msg []byte) error {
	if err := c.check(to); err != nil {
		return err
	}
	s := &c.h.ranks[to]
	if s.ended {
		return fmt.Errorf("control: to rank %d: %w", to, workload.ErrGone)
	}
	s.mail[c.rank] = append(s.mail[c.rank], append([]byte(nil), msg...))
	s.moved.Broadcast()
	return nil
}

func (c *control) Recv(from int, timeout time.Duration) ([]byte, error) {
	if err := c.check(from); err != nil {
		return nil, err
	}
	s := c.seat()
	until := c.now() + timeout
	for len(s.mail[from]) == 0 {
		if c.h.ranks[from].ended {
			return nil, fmt.Errorf("control: from rank %d: %w", from, workload.ErrGone)
		}
		left := verbs.Forever
		if timeout >= 0 {
			if left = until - c.now(); left <= 0 {
				return nil, fmt.Errorf("control: from rank %d: %w after %v", from, verbs.ErrTimeout, timeout)
			}
		}
		p := c.h.world.Current()
		if p == nil {
			return nil, c.outside()
		}
		s.waitee = from
		p.Wait(&s.moved, s, left)
	}
	msg := s.mail[from][0]
	s.mail[from] = s.mail[from][1:]
	return msg, nil
}

func (c *control) Barrier(timeout time.Duration) error {
	p := c.h.world.Current()
	if p == nil {
		return c.outside()
	}
	s, round := c.seat(), c.h.round
	s.meets = true
	c.h.tryMeet()
	until := c.now() + timeout
	for c.h.round == round {
		left := verbs.Forever
		if timeout >= 0 {
			if left = until - c.now(); left <= 0 {
				s.meets = false
				return fmt.Errorf("barrier: %w after %v", verbs.ErrTimeout, timeout)
			}
		}
		p.Wait(&c.h.meet, sim.What("the other ranks at a barrier"), left)
	}
	return nil
}

func (c *control) Mark(what string) {
	if c.h.OnMark != nil {
		c.h.OnMark(c.rank, c.now(), what)
	}
}

func (c *control) Sample(s workload.Sample) {
	if c.h.OnSample != nil {
		c.h.OnSample(c.rank, s)
	}
}

func (c *control) now() time.Duration { return time.Duration(c.h.world.Now()) }

func (c *control) outside() error {
	return fmt.Errorf("control: %w: not a program of the simulated world: start it with World.Go", verbs.ErrInvalid)
}
