// Package hub joins the ranks of a simulated world by words and barriers, on which they
// park instead of blocking a thread. Words take no time, for they are no part of what is
// measured, and room only while they lie here. Like the world, a hub belongs to the one
// goroutine that runs it.
package hub

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/verbs"
)

// Hub joins ranks.
type Hub struct {
	world *sim.World
	gone  error
	seats []seat

	round, met, ended int        // of the barrier: rounds so far, ranks in this one, ranks that never come again
	meet              sim.Signal // when a round is complete
}

// seat is one rank's place at the hub.
type seat struct {
	mail   map[int][][]byte // by sender, of whom most never write
	moved  sim.Signal       // something came, or whom it waits for has ended
	waitee int              // whom it waits for
	meets  bool             // it waits in the barrier
	ended  bool
}

// New returns a hub for ranks 0 to size-1. What there is to say of one who has ended is
// the error gone.
func New(w *sim.World, size int, gone error) *Hub {
	return &Hub{world: w, gone: gone, seats: make([]seat, size)}
}

// End says that a rank has ended, in whatever way: nobody waits for it any more. What
// it sent before is still delivered.
func (h *Hub) End(rank int) {
	s := &h.seats[rank]
	if s.ended {
		return
	}
	if s.meets {
		s.meets = false
		h.met--
	}
	s.ended, s.mail = true, nil
	h.ended++
	for i := range h.seats {
		if w := &h.seats[i]; w.waitee == rank && w.moved.Waiting() > 0 {
			w.moved.Broadcast()
		}
	}
	h.tryMeet()
}

// tryMeet ends the round of the barrier if nobody is missing.
func (h *Hub) tryMeet() {
	if h.met == 0 || h.met+h.ended < len(h.seats) {
		return
	}
	for i := range h.seats {
		h.seats[i].meets = false
	}
	h.met = 0
	h.round++
	h.meet.Broadcast()
}

// Endpoint is one rank's view of the hub.
type Endpoint struct {
	h    *Hub
	rank int
}

// Endpoint returns a rank's.
func (h *Hub) Endpoint(rank int) *Endpoint { return &Endpoint{h, rank} }

// Rank is whose seat it is.
func (c *Endpoint) Rank() int { return c.rank }

// World is where it stands.
func (c *Endpoint) World() *sim.World { return c.h.world }

// Now is the world's time.
func (c *Endpoint) Now() time.Duration { return time.Duration(c.h.world.Now()) }

// String says what a parked rank waits for.
func (s *seat) String() string { return fmt.Sprintf("a word of rank %d", s.waitee) }

func (c *Endpoint) check(rank int) error {
	if rank < 0 || rank >= len(c.h.seats) {
		return fmt.Errorf("control: %w: rank %d of %d", verbs.ErrInvalid, rank, len(c.h.seats))
	}
	return nil
}

// Send sends a word, of which it takes a copy. It never waits.
func (c *Endpoint) Send(to int, msg []byte) error {
	if err := c.check(to); err != nil {
		return err
	}
	s := &c.h.seats[to]
	if s.ended {
		return fmt.Errorf("control: to rank %d: %w", to, c.h.gone)
	}
	if s.mail == nil {
		s.mail = make(map[int][][]byte)
	}
	s.mail[c.rank] = append(s.mail[c.rank], append([]byte(nil), msg...))
	if s.waitee == c.rank {
		s.moved.Broadcast()
	}
	return nil
}

// Recv returns the next word of a rank. It waits for timeout at most, without end if it
// is negative.
func (c *Endpoint) Recv(from int, timeout time.Duration) ([]byte, error) {
	if err := c.check(from); err != nil {
		return nil, err
	}
	s := &c.h.seats[c.rank]
	until := c.Now() + timeout
	for len(s.mail[from]) == 0 {
		if c.h.seats[from].ended {
			return nil, fmt.Errorf("control: from rank %d: %w", from, c.h.gone)
		}
		left := verbs.Forever
		if timeout >= 0 {
			if left = until - c.Now(); left <= 0 {
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
	queue := s.mail[from]
	if len(queue) == 1 {
		delete(s.mail, from)
	} else {
		s.mail[from] = queue[1:]
	}
	return queue[0], nil
}

// Barrier returns when every rank that has not ended is in it, or after timeout, if it is
// not negative.
func (c *Endpoint) Barrier(timeout time.Duration) error {
	p := c.h.world.Current()
	if p == nil {
		return c.outside()
	}
	s, round := &c.h.seats[c.rank], c.h.round
	if !s.meets {
		s.meets = true
		c.h.met++
	}
	c.h.tryMeet()
	until := c.Now() + timeout
	for c.h.round == round {
		left := verbs.Forever
		if timeout >= 0 {
			if left = until - c.Now(); left <= 0 {
				s.meets = false
				c.h.met--
				return fmt.Errorf("barrier: %w after %v", verbs.ErrTimeout, timeout)
			}
		}
		p.Wait(&c.h.meet, sim.WaitReason("the other ranks at a barrier of the launcher"), left)
	}
	return nil
}

// Gone reports whether a rank has ended.
func (c *Endpoint) Gone(rank int) bool { return c.check(rank) == nil && c.h.seats[rank].ended }

func (c *Endpoint) outside() error {
	return fmt.Errorf("control: %w: not called by a program of the simulated world, which World.Go starts", verbs.ErrInvalid)
}
