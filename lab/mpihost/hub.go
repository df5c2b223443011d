package mpihost

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/mpi/env"
	"github.com/fabrictest/fabrictest/verbs"
)

// hub joins the ranks of a world: each has an env.Control at it. Messages take no time,
// for they are no part of what is measured, and room only while they lie here.
type hub struct {
	world *sim.World
	seats []seat
	abort func(rank, code int, why string)

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

func newHub(w *sim.World, size int) *hub { return &hub{world: w, seats: make([]seat, size)} }

// end says that a rank has ended, in whatever way: nobody waits for it any more. What
// it sent before is still delivered.
func (h *hub) end(rank int) {
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
func (h *hub) tryMeet() {
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

// control is one rank's view of the hub.
type control struct {
	h    *hub
	rank int
}

var _ env.Control = (*control)(nil)

// String says what a parked rank waits for.
func (s *seat) String() string { return fmt.Sprintf("a word of rank %d", s.waitee) }

func (c *control) check(rank int) error {
	if rank < 0 || rank >= len(c.h.seats) {
		return fmt.Errorf("control: %w: rank %d of %d", verbs.ErrInvalid, rank, len(c.h.seats))
	}
	return nil
}

// Send implements env.Control. It never waits.
func (c *control) Send(to int, msg []byte) error {
	if err := c.check(to); err != nil {
		return err
	}
	s := &c.h.seats[to]
	if s.ended {
		return fmt.Errorf("control: to rank %d: %w", to, env.ErrGone)
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

// Recv implements env.Control.
func (c *control) Recv(from int, timeout time.Duration) ([]byte, error) {
	if err := c.check(from); err != nil {
		return nil, err
	}
	s := &c.h.seats[c.rank]
	until := c.now() + timeout
	for len(s.mail[from]) == 0 {
		if c.h.seats[from].ended {
			return nil, fmt.Errorf("control: from rank %d: %w", from, env.ErrGone)
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
	queue := s.mail[from]
	if len(queue) == 1 {
		delete(s.mail, from)
	} else {
		s.mail[from] = queue[1:]
	}
	return queue[0], nil
}

// Barrier implements env.Control.
func (c *control) Barrier(timeout time.Duration) error {
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
	until := c.now() + timeout
	for c.h.round == round {
		left := verbs.Forever
		if timeout >= 0 {
			if left = until - c.now(); left <= 0 {
				s.meets = false
				c.h.met--
				return fmt.Errorf("barrier: %w after %v", verbs.ErrTimeout, timeout)
			}
		}
		p.Wait(&c.h.meet, sim.What("the other ranks at a barrier of the launcher"), left)
	}
	return nil
}

// Gone implements env.Control.
func (c *control) Gone(rank int) bool {
	return c.check(rank) == nil && c.h.seats[rank].ended
}

// Abort implements env.Control. It does not return: the caller is parked until it is
// ended with the others, so it must hold no lock that their deferred calls take.
func (c *control) Abort(code int, why string) {
	c.h.abort(c.rank, code, why)
	if p := c.h.world.Current(); p != nil {
		var never sim.Signal
		for {
			p.Wait(&never, sim.What("the end of all ranks"), verbs.Forever)
		}
	}
}

func (c *control) now() time.Duration { return time.Duration(c.h.world.Now()) }

func (c *control) outside() error {
	return fmt.Errorf("control: %w: not called by a rank, nor by what it runs with Env.Go", verbs.ErrInvalid)
}
