package random_test

import (
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/emu/softiwarp"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/scenarios/random"
	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// newStreamWorld connects two soft-iWARP devices by a cable.
func newStreamWorld(t testing.TB, seed uint64, streams sim.StreamConfig, noCRC bool) *world {
	t.Helper()
	return newPair(t, seed, cable{stream: streams}, func(w *sim.World, p *sim.Port, name string) (verbs.Context, error) {
		cfg := softiwarp.Config{Name: name}
		cfg.NIC.MPA.NoCRC = noCRC
		return softiwarp.InWorld(w, p, p.StreamHost(), cfg)
	})
}

// connections returns a workload that suits the device, with and without shared receives.
func connections(t testing.TB, dev verbs.Context, seed uint64, messages int) *random.Workload {
	t.Helper()
	m := must.Get(traffic.TraitsOf(dev))(t)
	w := &random.Workload{Seed: seed, CQs: 2, SharedWords: 3, Traits: m}
	for i := range 3 {
		l := random.NewLane(random.RC, messages, 9000)
		l.SharedReceives = i > 0
		l.Adapt(&m)
		w.Lanes = append(w.Lanes, l)
	}
	return w
}

// Reliable connections of iWARP keep their guarantees, whatever happens to TCP segments.
func TestReliableConnectionsOverIWARP(t *testing.T) {
	for seed := range uint64(6) {
		w := newStreamWorld(t, seed, sim.StreamConfig{CutPPM: 200_000, StallPPM: 20_000, StallFor: time.Millisecond}, false)
		results, err := w.run(t, connections(t, w.devices[0], seed, 300))
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for side, r := range results {
			for i, l := range r.Lanes {
				if l.Received.Delivered != 300 || l.Sent.Completed != 300 {
					t.Errorf("seed %d, side %d, lane %d: %+v", seed, side, i, l)
				}
			}
		}
	}
}

// Without CRCs the programs detect that the stream is corrupted.
func TestCorruptionWithoutCRCCheckIsDetected(t *testing.T) {
	damaged := sim.StreamConfig{CorruptPPM: 20_000}
	found := 0
	for seed := range uint64(4) {
		w := newStreamWorld(t, seed, damaged, true)
		if _, err := w.run(t, connections(t, w.devices[0], seed, 100)); err != nil {
			found++
		}
	}
	if found != 4 {
		t.Errorf("%d of 4 detected", found)
	}
}

func TestValidateRejectsMissingTransportTraits(t *testing.T) {
	w := newStreamWorld(t, 1, sim.StreamConfig{}, false)
	work := connections(t, w.devices[0], 1, 10)
	work.Network.GivesUp = true
	work.Lanes[0] = random.NewLane(random.UC, 100, 100)
	work.Lanes[0].RecvDepth = 1
	work.Lanes[1].Mix = random.Operations(random.RC)
	_, err := random.NewEnd(random.Env{}, work, random.A)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"memory cannot be checked", "connections only", "1 receives for 100 messages", "which the transport lacks"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
}
