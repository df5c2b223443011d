// Package simcontrol provides the control channels of packages random and workload in a
// simulated world. A call that blocks suspends the coroutine of its program. The channels
// belong to the goroutine that runs the world.
package simcontrol

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// Pipe returns the two ends of an Exchange between programs of w. Messages take no time.
func Pipe(w *sim.World) (a, b traffic.Exchange) {
	ab, ba := new(messageQueue), new(messageQueue)
	return &end{world: w, out: ab, in: ba}, &end{world: w, out: ba, in: ab}
}

type messageQueue struct {
	msgs    [][]byte
	arrived sim.Signal
}

type end struct {
	world   *sim.World
	out, in *messageQueue
}

func (e *end) Send(msg []byte) error {
	e.out.msgs = append(e.out.msgs, msg)
	e.out.arrived.Broadcast()
	return nil
}

func (e *end) Recv(timeout time.Duration) ([]byte, error) {
	for len(e.in.msgs) == 0 {
		p := e.world.Current()
		if p == nil {
			return nil, fmt.Errorf("exchange: %w: not a program of the simulated world: start it with World.Go", verbs.ErrInvalid)
		}
		if timeout == 0 || !p.Wait(&e.in.arrived, sim.WaitReason("a message of the peer's program"), timeout) {
			return nil, fmt.Errorf("exchange: %w after %v", verbs.ErrTimeout, timeout)
		}
	}
	msg := e.in.msgs[0]
	e.in.msgs = e.in.msgs[1:]
	return msg, nil
}
