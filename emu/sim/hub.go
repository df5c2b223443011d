package sim

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// Hub is the control channel between the ranks of a world: messages and barriers on which
// their programs park. Messages take no virtual time.
type Hub struct {
	world   *World
	errGone error
	ranks   []rankState
	// waitsFor is the rank that Recv of each rank waits for. End looks at all: they are close together.
	waitsFor []int32

	barrierRound, barrierArrived, endedRanks int
	barrierDone                              Signal // when barrierRound is incremented
}

// rankState is the state of one rank.
type rankState struct {
	inbox     map[int][][]byte // by sender, allocated on demand
	changed   Signal           // a message arrived, or the awaited rank ended
	inBarrier bool             // waits in Barrier
	ended     bool
}

// NewHub returns a hub for ranks 0 to size-1. Calls that address an ended rank return gone.
func NewHub(w *World, size int, gone error) *Hub {
	return &Hub{world: w, errGone: gone, ranks: make([]rankState, size), waitsFor: make([]int32, size)}
}

// End marks a rank as ended: others no longer wait for it. Messages it sent are still delivered.
func (h *Hub) End(rank int) {
	s := &h.ranks[rank]
	if s.ended {
		return
	}
	if s.inBarrier {
		s.inBarrier = false
		h.barrierArrived--
	}
	s.ended, s.inbox = true, nil
	h.endedRanks++
	for i, awaited := range h.waitsFor {
		if int(awaited) == rank { // no effect if it is not in Recv
			h.ranks[i].changed.Broadcast()
		}
	}
	h.tryCompleteBarrier()
}

// tryCompleteBarrier releases the ranks in the barrier, and counts the round, if all ranks that
// have not ended are in it.
func (h *Hub) tryCompleteBarrier() {
	if h.barrierArrived == 0 || h.barrierArrived+h.endedRanks < len(h.ranks) {
		return
	}
	for i := range h.ranks {
		h.ranks[i].inBarrier = false
	}
	h.barrierArrived = 0
	h.barrierRound++
	h.barrierDone.Broadcast()
}

// Endpoint is one rank's view of the hub.
type Endpoint struct {
	h    *Hub
	rank int
}

// Endpoint returns the endpoint of a rank.
func (h *Hub) Endpoint(rank int) *Endpoint { return &Endpoint{h, rank} }

// Rank returns the rank of the endpoint.
func (c *Endpoint) Rank() int { return c.rank }

// World returns the hub's world.
func (c *Endpoint) World() *World { return c.h.world }

// Now returns the virtual time.
func (c *Endpoint) Now() time.Duration { return time.Duration(c.h.world.Now()) }

// String describes the wait of Recv.
func (c *Endpoint) String() string {
	return fmt.Sprintf("a message from rank %d", c.h.waitsFor[c.rank])
}

// checkRank returns an error if a rank does not exist.
func (c *Endpoint) checkRank(rank int) error {
	if rank < 0 || rank >= len(c.h.ranks) {
		return fmt.Errorf("control: %w: rank %d of %d", verbs.ErrInvalid, rank, len(c.h.ranks))
	}
	return nil
}

// Send sends a copy of msg to a rank. It never blocks.
func (c *Endpoint) Send(to int, msg []byte) error {
	if err := c.checkRank(to); err != nil {
		return err
	}
	s := &c.h.ranks[to]
	if s.ended {
		return fmt.Errorf("control: to rank %d: %w", to, c.h.errGone)
	}
	if s.inbox == nil {
		s.inbox = make(map[int][][]byte)
	}
	s.inbox[c.rank] = append(s.inbox[c.rank], append([]byte(nil), msg...))
	if int(c.h.waitsFor[to]) == c.rank { // no effect if the rank is not in Recv
		s.changed.Broadcast()
	}
	return nil
}

// Recv returns the next message from a rank. It waits up to timeout, forever if that is negative.
func (c *Endpoint) Recv(from int, timeout time.Duration) ([]byte, error) {
	if err := c.checkRank(from); err != nil {
		return nil, err
	}
	s := &c.h.ranks[c.rank]
	until := c.Now() + timeout
	for len(s.inbox[from]) == 0 {
		if c.h.ranks[from].ended {
			return nil, fmt.Errorf("control: from rank %d: %w", from, c.h.errGone)
		}
		left := verbs.Forever
		if timeout >= 0 {
			if left = until - c.Now(); left <= 0 {
				return nil, fmt.Errorf("control: from rank %d: %w after %v", from, verbs.ErrTimeout, timeout)
			}
		}
		p := c.h.world.Current()
		if p == nil {
			return nil, c.errOutsideProgram()
		}
		c.h.waitsFor[c.rank] = int32(from)
		p.Wait(&s.changed, c, left) // c.String names the awaited rank
	}
	queue := s.inbox[from]
	if len(queue) == 1 {
		delete(s.inbox, from)
	} else {
		s.inbox[from] = queue[1:]
	}
	return queue[0], nil
}

// Barrier returns when every rank that has not ended is in Barrier, or with an error after timeout;
// a negative timeout means forever.
func (c *Endpoint) Barrier(timeout time.Duration) error {
	p := c.h.world.Current()
	if p == nil {
		return c.errOutsideProgram()
	}
	s, round := &c.h.ranks[c.rank], c.h.barrierRound
	if !s.inBarrier {
		s.inBarrier = true
		c.h.barrierArrived++
	}
	c.h.tryCompleteBarrier()
	until := c.Now() + timeout
	for c.h.barrierRound == round {
		left := verbs.Forever
		if timeout >= 0 {
			if left = until - c.Now(); left <= 0 {
				s.inBarrier = false
				c.h.barrierArrived--
				return fmt.Errorf("barrier: %w after %v", verbs.ErrTimeout, timeout)
			}
		}
		p.Wait(&c.h.barrierDone, WaitReason("the other ranks at a barrier of the launcher"), left)
	}
	return nil
}

// Gone reports whether a rank has ended.
func (c *Endpoint) Gone(rank int) bool { return c.checkRank(rank) == nil && c.h.ranks[rank].ended }

func (c *Endpoint) errOutsideProgram() error {
	return fmt.Errorf("control: %w: not called by a program of the simulated world, which World.Go starts", verbs.ErrInvalid)
}

// Pipe returns the two ends of a control channel between two programs of w. Messages take
// no virtual time. The ends implement traffic.Exchange.
func Pipe(w *World) (a, b *PipeEnd) {
	h := NewHub(w, 2, nil) // nil: no error for ended ranks, since none ends
	return &PipeEnd{h.Endpoint(0)}, &PipeEnd{h.Endpoint(1)}
}

// PipeEnd is an end of a Pipe.
type PipeEnd struct{ endpoint *Endpoint }

// Send sends a message. It never blocks.
func (e *PipeEnd) Send(msg []byte) error { return e.endpoint.Send(1-e.endpoint.rank, msg) }

// Recv returns the next message. It waits for at most timeout; a negative timeout means forever.
func (e *PipeEnd) Recv(timeout time.Duration) ([]byte, error) {
	return e.endpoint.Recv(1-e.endpoint.rank, timeout)
}
