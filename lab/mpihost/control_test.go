package mpihost

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/verbs"
)

func TestControlMessagesArriveInOrder(t *testing.T) {
	var outside transport.Control
	_, err := InWorld(Fabric{Ranks: 3}, func(e *transport.Env) error {
		c := e.Control
		outside = c
		switch e.Rank {
		case 0:
			e.Proc.Sleep(time.Millisecond)
			msg := []byte("one")
			err := c.Send(1, msg)
			msg[0] = 'X' // the sender may reuse its buffer
			return errors.Join(err, c.Send(1, []byte("two")), c.Send(1, []byte("three")))
		case 1:
			for _, d := range []time.Duration{0, 10 * time.Microsecond} {
				began := e.Proc.Now()
				if _, err := c.Recv(0, d); !errors.Is(err, verbs.ErrTimeout) || e.Proc.Now()-began != d {
					return fmt.Errorf("Recv(%v) = %v after %v", d, err, e.Proc.Now()-began)
				}
			}
			for i, want := range []string{"one", "two", "three"} {
				if got, err := c.Recv(0, verbs.Forever); err != nil || string(got) != want {
					return fmt.Errorf("message %d: %q, %v", i, got, err)
				}
			}
			for _, rank := range []int{-1, 3} {
				_, err := c.Recv(rank, 0)
				if !errors.Is(err, verbs.ErrInvalid) || !errors.Is(c.Send(rank, nil), verbs.ErrInvalid) || c.Gone(rank) {
					return fmt.Errorf("rank %d: %v", rank, err)
				}
			}
		case 2: // messages of other ranks do not disturb a receive
			e.Proc.Sleep(500 * time.Microsecond)
			return c.Send(1, []byte("of rank 2"))
		}
		return nil
	})
	must.Do(t, err)
	if _, err := outside.Recv(1, verbs.Forever); !errors.Is(err, transport.ErrGone) {
		t.Errorf("Recv from a rank that has ended: %v", err)
	}
	if err := outside.Barrier(verbs.Forever); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("a barrier after the end of the world: %v", err)
	}
}

// A barrier opens when the last rank enters or ends. A rank whose call timed out
// does not count, and may enter again. A task may wait in it.
func TestBarrier(t *testing.T) {
	const size = 4
	var times []time.Duration
	_, err := InWorld(Fabric{Ranks: size}, func(e *transport.Env) error {
		if e.Rank == 0 {
			if err := e.Control.Barrier(time.Microsecond); !errors.Is(err, verbs.ErrTimeout) {
				return fmt.Errorf("a barrier that no other rank entered: %v", err)
			}
		}
		for round := range 3 {
			e.Proc.Sleep(time.Duration(e.Rank+1) * time.Millisecond)
			switch {
			case e.Rank == size-1 && round == 2:
				return nil
			case e.Rank == 1:
				var passed sim.Signal
				e.Go("barrier", func(verbs.Proc) {
					if e.Control.Barrier(verbs.Forever) == nil {
						passed.Broadcast()
					}
				})
				if !e.Proc.(*sim.Proc).Wait(&passed, sim.WaitReason("its task"), time.Second) {
					return errors.New("the task did not pass the barrier")
				}
			default:
				if err := e.Control.Barrier(verbs.Forever); err != nil {
					return err
				}
			}
			if e.Rank == 0 {
				times = append(times, e.Proc.Now().Truncate(time.Millisecond))
			}
		}
		return nil
	})
	if got, want := fmt.Sprint(times), "[4ms 8ms 12ms]"; err != nil || got != want {
		t.Errorf("%v, rounds at %s, want %s", err, got, want)
	}
}
