package traffic_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/emu/softroce"
	"github.com/fabrictest/fabrictest/scenarios/simcontrol"
	"github.com/fabrictest/fabrictest/scenarios/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// world is two devices on a cable.
type world struct {
	*sim.World
	devices [2]verbs.Context
}

func newWorld(t testing.TB, seed uint64, spec impair.Spec) *world {
	t.Helper()
	w := &world{World: sim.New(sim.Config{Seed: seed})}
	port := func(addr string) sim.PortConfig {
		return sim.PortConfig{
			Addrs: []netip.Addr{netip.MustParseAddr(addr)}, Up: impair.Config{Specs: []impair.Spec{spec}},
			Link: sim.LinkConfig{RateBps: 100e9, Latency: time.Microsecond, MTU: 4200},
		}
	}
	a, b, err := sim.NewPair(w.World, sim.NetConfig{}, port("fd00::1"), port("fd00::2"))
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range []*sim.Port{a, b} {
		cfg := softroce.Config{Name: fmt.Sprint("host", i)}
		if w.devices[i], err = softroce.InWorld(w.World, p, p, cfg); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// run runs a workload on the two devices.
func (w *world) run(t testing.TB, work *traffic.Workload) (results [2]*traffic.Result, err error) {
	t.Helper()
	var pipes [2]traffic.Exchange
	pipes[0], pipes[1] = simcontrol.Pipe(w.World)
	for side := range traffic.Side(2) {
		end, err := traffic.NewEnd(traffic.Env{Device: w.devices[side], Peer: pipes[side]}, work, side)
		if err != nil {
			t.Fatal(err)
		}
		w.Go("side "+side.String(), func(p *sim.Proc) (err error) {
			results[side], err = end.Run(p)
			return err
		})
	}
	return results, w.RunPrograms()
}

func everyService() *traffic.Workload {
	w := &traffic.Workload{Seed: 1, CQs: 2, SharedWords: 3}
	for _, s := range []traffic.Service{traffic.RC, traffic.UC, traffic.UD, traffic.XRC} {
		size := 5000
		if s == traffic.UD {
			size = 1024
		}
		w.Lanes = append(w.Lanes, traffic.NewLane(s, 300, size))
	}
	shared := traffic.NewLane(traffic.RC, 300, 3000)
	shared.SharedReceives = true
	w.Lanes = append(w.Lanes, shared)
	return w
}

func TestCleanNetworkLosesNothing(t *testing.T) {
	results, err := newWorld(t, 1, impair.Spec{}).run(t, everyService())
	if err != nil {
		t.Fatal(err)
	}
	for side, r := range results {
		for i, l := range r.Lanes {
			if l.Sent.Posted != 300 || l.Sent.Completed != 300 || l.Received.Delivered != 300 || l.Received.Lost != 0 {
				t.Errorf("side %d, lane %d (%v): sent %+v, received %+v", side, i, l.Service, l.Sent, l.Received)
			}
		}
	}
}

func TestReliableServicesRecoverOnBadNetwork(t *testing.T) {
	work := everyService()
	work.Network = traffic.Network{Loses: true, Duplicates: true, Reorders: true}
	results, err := newWorld(t, 1, impair.Spec{
		LossPPM: 20_000, DuplicatePPM: 10_000, ReorderPPM: 10_000, ReorderDelay: 20 * time.Microsecond, CorruptPPM: 10_000,
	}).run(t, work)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		for i, l := range r.Lanes {
			if got := l.Received; l.Service.Reliable() && got.Delivered != 300 || got.Delivered+got.Lost != 300 {
				t.Errorf("lane %d (%v): %+v", i, l.Service, got)
			}
			if got := l.Received; l.Service == traffic.UD && (got.Lost == 0 || got.Duplicated+got.Reordered == 0) {
				t.Errorf("lane %d (%v) saw no effects of the network: %+v", i, l.Service, got)
			}
		}
		if r.Counter("retransmitted_pkts") == 0 {
			t.Error("no retransmissions")
		}
	}
}

// A network too bad for the retry count ends a lane, and all requests before the failure
// are checked.
func TestLanesFailWhenRetriesAreExhausted(t *testing.T) {
	work := everyService()
	work.Network = traffic.Network{Loses: true, GivesUp: true}
	for i := range work.Lanes {
		work.Lanes[i].RetryCnt = 1
	}
	failed := 0
	for seed := range uint64(10) {
		work.Seed = seed
		results, err := newWorld(t, seed, impair.Spec{LossPPM: 100_000}).run(t, work)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for _, r := range results {
			for _, l := range r.Lanes {
				if l.Sent.Failed != verbs.WCSuccess {
					failed++
				}
			}
		}
	}
	if failed < 10 {
		t.Errorf("only %d lanes failed", failed)
	}
	work.Network.GivesUp = false
	_, err := newWorld(t, 0, impair.Spec{LossPPM: 100_000}).run(t, work)
	var v *traffic.Violation
	if !errors.As(err, &v) || !strings.Contains(v.Got, "IBV_WC_RETRY_EXC_ERR") {
		t.Errorf("without GivesUp: %v", err)
	}
}

func TestAllWakeupModes(t *testing.T) {
	for _, how := range []traffic.Wakeup{traffic.ByEvent, traffic.BySolicited, traffic.ByPolling} {
		work := everyService()
		work.Wakeup = how
		for i := range work.Lanes {
			work.Lanes[i].SendPacing = traffic.Pacing{Batch: 3, Pause: 2 * time.Microsecond}
			if work.Lanes[i].Service.Reliable() {
				work.Lanes[i].RecvPacing = traffic.Pacing{Batch: 1, Pause: 20 * time.Microsecond}
			}
		}
		results, err := newWorld(t, 1, impair.Spec{}).run(t, work)
		if err != nil {
			t.Errorf("wakeup %d: %v", how, err)
			continue
		}
		if results[0].Counter("rcvd_rnr_nak") == 0 {
			t.Errorf("wakeup %d: slow receivers caused no RNR NAKs", how)
		}
	}
}

// expectDeadlock checks that the world reports a deadlock and which programs wait.
func expectDeadlock(t *testing.T, err error) {
	t.Helper()
	var d *sim.DeadlockError
	if !errors.As(err, &d) || len(d.Waiting) == 0 {
		t.Fatalf("run = %v, want a deadlock", err)
	}
	t.Log(d)
}

func expectStall(t *testing.T, err error, why string) {
	t.Helper()
	var s *traffic.StallError
	if !errors.As(err, &s) || !strings.Contains(err.Error(), why) {
		t.Fatalf("run = %v, want a stall error: %s", err, why)
	}
}
