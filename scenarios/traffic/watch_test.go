package traffic_test

import (
	"errors"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/emu/softroce"
	"github.com/fabrictest/fabrictest/scenarios/simcontrol"
	"github.com/fabrictest/fabrictest/scenarios/traffic"
)

var errEnded = errors.New("the peer has ended")

// mortal is an Exchange whose other end ends at a time.
type mortal struct {
	traffic.Exchange
	world *sim.World
	until time.Duration
}

func (m *mortal) Recv(timeout time.Duration) ([]byte, error) {
	if time.Duration(m.world.Now()) >= m.until {
		return nil, errEnded
	}
	return m.Exchange.Recv(timeout)
}

// An end that watches notices a peer that has ended, whatever it waits for; one
// that does not waits for ever. Meanwhile Pulse sees how far it is.
func TestWatchNoticesThatThePeerHasEnded(t *testing.T) {
	for _, watch := range []bool{true, false} {
		w := newWorld(t, 1, impair.Spec{}, softroce.Quirks{})
		work := &traffic.Workload{Seed: 1, CQs: 1, Lanes: []traffic.Lane{traffic.NewLane(traffic.RC, 5000, 3000)}}
		var pipes [2]traffic.Exchange
		pipes[0], pipes[1] = simcontrol.Pipe(w.World)
		const death = 300 * time.Microsecond
		pipes[0] = &mortal{pipes[0], w.World, death}
		var ends [2]*traffic.End
		pulses, most := 0, 0
		for side := range traffic.Side(2) {
			env := traffic.Env{Device: w.devices[side], Peer: pipes[side], DetectPeerEnd: watch}
			if side == traffic.A {
				env.OnStep = func() {
					pulses++
					most = max(most, ends[0].Result().Lanes[0].Sent.Posted)
				}
			}
			var err error
			if ends[side], err = traffic.NewEnd(env, work, side); err != nil {
				t.Fatal(err)
			}
		}
		// B's receives dry up: its program stands still.
		w.Go("A", func(p *sim.Proc) error {
			_, err := ends[0].Run(p)
			return err
		})
		b := w.Go("B", func(p *sim.Proc) error {
			_, err := ends[1].Run(p)
			return err
		})
		w.AfterFunc(death, b.Pause)
		err := w.RunUntil(1e9)
		if watch != errors.Is(err, errEnded) {
			t.Errorf("watching is %v: run = %v", watch, err)
		}
		if pulses == 0 || most == 0 {
			t.Errorf("%d pulses, %d requests seen", pulses, most)
		}
		w.Close()
	}
}
