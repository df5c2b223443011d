package random_test

import (
	"errors"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/scenarios/random"
	"github.com/fabrictest/fabrictest/traffic"
)

var errEnded = errors.New("the peer has ended")

// endingExchange is an Exchange whose peer ends at a given time.
type endingExchange struct {
	traffic.Exchange
	world *sim.World
	until time.Duration
}

func (m *endingExchange) Recv(timeout time.Duration) ([]byte, error) {
	if time.Duration(m.world.Now()) >= m.until {
		return nil, errEnded
	}
	return m.Exchange.Recv(timeout)
}

// With DetectPeerEnd an end notices that its peer has ended, whatever it waits for;
// without, it waits for ever. OnStep reports its progress meanwhile.
func TestDetectPeerEndEndsRun(t *testing.T) {
	for _, watch := range []bool{true, false} {
		w := newWorld(t, 1, impair.Spec{})
		work := &random.Workload{Seed: 1, CQs: 1, Lanes: []random.Lane{random.NewLane(random.RC, 5000, 3000)}}
		var pipes [2]traffic.Exchange
		pipes[0], pipes[1] = sim.Pipe(w.World)
		const death = 300 * time.Microsecond
		pipes[0] = &endingExchange{pipes[0], w.World, death}
		var ends [2]*random.End
		pulses, most := 0, 0
		for side := range random.Side(2) {
			env := random.Env{Device: w.devices[side], Peer: pipes[side], DetectPeerEnd: watch}
			if side == random.A {
				env.OnStep = func() {
					pulses++
					most = max(most, ends[0].Result().Lanes[0].Sent.Posted)
				}
			}
			var err error
			if ends[side], err = random.NewEnd(env, work, side); err != nil {
				t.Fatal(err)
			}
		}
		// The receives of B are used up: its program does not run.
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
			t.Errorf("%d steps, %d requests seen", pulses, most)
		}
		w.Close()
	}
}
