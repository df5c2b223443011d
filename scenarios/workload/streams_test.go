package workload_test

import (
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/scenarios/workload"
)

// Every kind of workload runs over NICs that connect through the CM only, have no RNR, and
// complete requests before delivery.
func TestKindsOverStreams(t *testing.T) {
	cut := sim.StreamConfig{CutPPM: 200_000, StallPPM: 10_000, StallFor: 30 * time.Millisecond}
	for name, cfg := range map[string]workload.Config{
		"send":        {Kind: workload.Stream, Op: workload.OpSend, Messages: 100, Bytes: 9000},
		"write":       {Kind: workload.Stream, Op: workload.OpWrite, Messages: 100, Bytes: 9000},
		"read":        {Kind: workload.Stream, Op: workload.OpRead, Messages: 100, Bytes: 9000},
		"short":       {Kind: workload.Stream, Op: workload.OpSend, Messages: 100, Bytes: 3},
		"pingpong":    {Kind: workload.PingPong, Messages: 100, Bytes: 3},
		"incast":      {Kind: workload.Incast, Op: workload.OpWrite, Messages: 40, Bytes: 9000},
		"all to all":  {Kind: workload.AllToAll, Op: workload.OpSend, Messages: 40, Bytes: 3000, Services: []string{workload.ServiceSRQ}},
		"halo":        {Kind: workload.Halo, Messages: 30, Bytes: 3000},
		"halo, reads": {Kind: workload.Halo, Op: workload.OpRead, Messages: 30, Bytes: 3000},
		"calls":       {Kind: workload.Calls, Messages: 30, Bytes: 3000},
		"random":      {Kind: workload.Random, Services: []string{workload.ServiceRC, workload.ServiceSRQ}, Messages: 100, Bytes: 9000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, s := range []sim.StreamConfig{{}, cut} {
				r := rigOf(t, streams, s, rigSeed, 4, 1)
				for rank, rep := range r.run(cfg) {
					if len(rep.Violations) > 0 || rep.FailureCount > 0 || rep.Reconnects > 0 {
						t.Errorf("rank %d: %d failures, %d reconnects, %s", rank, rep.FailureCount, rep.Reconnects, listed(rep.Violations))
					}
					for _, f := range rep.Flows {
						if f.Arrived != f.Expected || f.Duplicates > 0 {
							t.Errorf("rank %d: %+v", rank, f)
						}
					}
				}
			}
		})
	}
}

// Broken connections reconnect, and exactly the messages that have not arrived are sent
// again.
func TestBrokenStreamsReconnect(t *testing.T) {
	for seed := range uint64(20) {
		for _, op := range []string{workload.OpSend, workload.OpWrite, workload.OpRead} {
			r := rigOf(t, streams, sim.StreamConfig{ResetPPM: 4000, CutPPM: 100_000}, seed, 4, 1)
			broke := 0
			for rank, rep := range r.run(workload.Config{Kind: workload.AllToAll, Op: op, Messages: 60, Bytes: 5000, Reconnect: true}) {
				broke += rep.Reconnects
				if len(rep.Violations) > 0 {
					t.Errorf("seed %d, rank %d: %s", seed, rank, listed(rep.Violations))
				}
				for _, f := range rep.Flows {
					if f.Arrived != f.Expected || f.Duplicates > 0 {
						t.Errorf("seed %d, rank %d: %+v", seed, rank, f)
					}
				}
			}
			if seed == 0 && broke == 0 {
				t.Error("no connection broke")
			}
		}
	}
}

func TestUnsupportedWorkloadIsRejected(t *testing.T) {
	for want, cfg := range map[string]workload.Config{
		"softiwarp has no ud": {Kind: workload.Stream, Services: []string{workload.ServiceUD}, Bytes: 100},
		"pause: over softiwarp a message without a posted receive ends the connection": {Kind: workload.Stream, Pause: time.Millisecond},
	} {
		r := rigOf(t, streams, sim.StreamConfig{}, rigSeed, 2, 1)
		r.start(cfg)
		if err := r.RunPrograms(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
