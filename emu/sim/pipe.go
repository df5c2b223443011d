package sim

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// Pipe returns the two ends of a control channel between two programs of w. Messages take
// no virtual time. The ends implement traffic.Exchange.
func Pipe(w *World) (a, b *PipeEnd) {
	ab, ba := new(pipeQueue), new(pipeQueue)
	return &PipeEnd{world: w, out: ab, in: ba}, &PipeEnd{world: w, out: ba, in: ab}
}

type pipeQueue struct {
	msgs    [][]byte
	arrived Signal
}

// PipeEnd is an end of a Pipe.
type PipeEnd struct {
	world   *World
	out, in *pipeQueue
}

// Send sends a message. It never blocks.
func (e *PipeEnd) Send(msg []byte) error {
	e.out.msgs = append(e.out.msgs, msg)
	e.out.arrived.Broadcast()
	return nil
}

// Recv returns the next message. It waits for at most timeout; a negative timeout means
// forever.
func (e *PipeEnd) Recv(timeout time.Duration) ([]byte, error) {
	for len(e.in.msgs) == 0 {
		p := e.world.Current()
		if p == nil {
			return nil, fmt.Errorf("exchange: %w: not a program of the simulated world: start it with World.Go", verbs.ErrInvalid)
		}
		if timeout == 0 || !p.Wait(&e.in.arrived, WaitReason("a message of the peer's program"), timeout) {
			return nil, fmt.Errorf("exchange: %w after %v", verbs.ErrTimeout, timeout)
		}
	}
	msg := e.in.msgs[0]
	e.in.msgs = e.in.msgs[1:]
	return msg, nil
}
