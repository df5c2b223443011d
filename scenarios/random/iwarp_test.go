package random_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/dgiwarp"
	"github.com/fabrictest/fabrictest/emu/impair"
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

// connections returns a workload of RC connections that the device supports.
func connections(t testing.TB, dev verbs.Context, seed uint64, messages int) *random.Workload {
	return connsOf(t, dev, seed, random.RC, messages, 9000)
}

// Reliable connections of iWARP keep their guarantees when TCP segments are split or stalled.
func TestReliableConnectionsOverIWARPDeliverAll(t *testing.T) {
	for seed := range uint64(6) {
		w := newStreamWorld(t, seed, sim.StreamConfig{CutPPM: 200_000, StallPPM: 20_000, StallFor: time.Millisecond}, false)
		results, err := w.run(t, connections(t, w.devices[0], seed, 300))
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for side, r := range results {
			for i, l := range r.Conns {
				if l.Received.Delivered != 300 || l.Sent.Completed != 300 {
					t.Errorf("seed %d, side %d, connection %d: %+v", seed, side, i, l)
				}
			}
		}
	}
}

// Without CRCs the programs detect that the stream is corrupted.
func TestCorruptionWithoutCRCCheckIsDetected(t *testing.T) {
	corrupting := sim.StreamConfig{CorruptPPM: 20_000}
	detected := 0
	for seed := range uint64(4) {
		w := newStreamWorld(t, seed, corrupting, true)
		if _, err := w.run(t, connections(t, w.devices[0], seed, 100)); err != nil {
			detected++
		}
	}
	if detected != 4 {
		t.Errorf("%d of 4 detected", detected)
	}
}

func TestValidateRejectsMissingTransportTraits(t *testing.T) {
	w := newStreamWorld(t, 1, sim.StreamConfig{}, false)
	work := connections(t, w.devices[0], 1, 10)
	work.Network.GivesUp = true
	work.Conns[0] = random.NewConn(random.UC, 100, 100)
	work.Conns[0].RecvDepth = 1
	work.Conns[1].Mix = random.Operations(random.RC)
	_, err := random.NewEnd(random.Env{}, work, random.A)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"memory cannot be checked", "for RC only", "1 receives for 100 messages", "which the transport lacks"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
}

// newDatagramWorld connects two datagram-iWARP devices by a cable. at is their UDP port; 0 is
// the default port.
func newDatagramWorld(t testing.TB, seed uint64, c cable, reliable bool, at uint16) *world {
	t.Helper()
	return newPair(t, seed, c, func(w *sim.World, p *sim.Port, name string) (verbs.Context, error) {
		cfg := dgiwarp.Config{Name: name, QP: dgiwarp.QPOptions{Reliable: reliable}}
		cfg.NIC.Port = at
		return dgiwarp.InWorld(w, p, p, cfg)
	})
}

// addrPairs are the addresses of two ends, of either IP version.
var addrPairs = [][2]string{{"fd00::1", "fd00::2"}, {"10.0.0.1", "10.0.0.2"}}

// connsOf returns a workload of three connections of a service, one with SharedReceives and one
// with TightReceives.
func connsOf(t testing.TB, dev verbs.Context, seed uint64, s random.Service, messages, size int) *random.Workload {
	t.Helper()
	m := must.Get(traffic.TraitsOf(dev))(t)
	w := &random.Workload{Seed: seed, CQs: 2, SharedWords: 3, Traits: m}
	for i := range 3 {
		l := random.NewConn(s, messages, size)
		l.SharedReceives, l.TightReceives = i == 1, i == 2
		l.Adapt(&m)
		w.Conns = append(w.Conns, l)
	}
	return w
}

// Reliable datagrams of datagram-iWARP keep their guarantees on an impaired network, over both
// IP versions.
func TestReliableDatagramsRecoverOnImpairedNetwork(t *testing.T) {
	impaired := impair.Spec{
		LossPPM: 50_000, DuplicatePPM: 50_000, DuplicateDelay: 20 * time.Microsecond,
		ReorderPPM: 50_000, ReorderDelay: 30 * time.Microsecond, CorruptPPM: 10_000,
	}
	for seed := range uint64(6) {
		for _, spec := range []impair.Spec{{}, impaired} {
			w := newDatagramWorld(t, seed, cable{spec: spec, addrs: addrPairs[seed%2]}, true, 0)
			results, err := w.run(t, connsOf(t, w.devices[0], seed, random.RD, 300, 9000))
			if err != nil {
				t.Fatalf("seed %d, loss %d ppm: %v", seed, spec.LossPPM, err)
			}
			for side, r := range results {
				for i, l := range r.Conns {
					if l.Received.Delivered != 300 || l.Sent.Completed != 300 {
						t.Errorf("seed %d, side %d, connection %d: %+v", seed, side, i, l)
					}
				}
				// The first packet of a flow is retransmitted with the cookie of the receiver.
				if n := counter(r, "rd_sent_again"); (n > uint64(len(r.Conns))) != (spec.LossPPM > 0) {
					t.Errorf("seed %d, side %d: %d retransmissions", seed, side, n)
				}
			}
		}
	}
}

// Unreliable datagrams arrive intact, and their GRH has the layout of datagram-iWARP.
func TestUnreliableDatagramsAreIntact(t *testing.T) {
	for seed := range uint64(4) {
		w := newDatagramWorld(t, seed, cable{spec: impair.Spec{LossPPM: 100_000}, addrs: addrPairs[seed%2]}, false, 0)
		work := connsOf(t, w.devices[0], seed, random.UD, 300, 4096)
		for i := range work.Conns {
			work.Conns[i].MTU, work.Conns[i].SharedReceives = verbs.MTU4096, false
		}
		work.Network.Loses = true
		results, err := w.run(t, work)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for side, r := range results {
			for i, l := range r.Conns {
				if got := l.Received; got.Lost < 10 || got.Lost > 60 || got.Delivered+got.Lost != 300 {
					t.Errorf("seed %d, side %d, connection %d: %+v", seed, side, i, got)
				}
			}
		}
		// With the GRH layout of RoCE the check fails.
		w = newDatagramWorld(t, seed, cable{addrs: addrPairs[seed%2]}, false, 0)
		work.Traits.UDPPortInGRH = false
		var v *random.Violation
		if _, err := w.run(t, work); !errors.As(err, &v) || !strings.Contains(v.Want, "an IP packet that carries") {
			t.Errorf("seed %d: %v, want a violation of the GRH", seed, err)
		}
	}
}

// A message from an unexpected source port is a violation.
func TestSourcePortsAreChecked(t *testing.T) {
	for service, reliable := range map[random.Service]bool{random.UD: false, random.RD: true} {
		w := newDatagramWorld(t, 1, cable{}, reliable, 7777)
		work := connsOf(t, w.devices[0], 1, service, 20, 256)
		var v *random.Violation
		if _, err := w.run(t, work); !errors.As(err, &v) || !strings.Contains(v.Want, "source port 65041") || v.Got != "7777" {
			t.Errorf("%v: %v, want a violation of the port", service, err)
		}
	}
}

// RD gives up on peers, not on queue pairs, which the model of a connection does not support.
func TestValidateRejectsGivesUpForRD(t *testing.T) {
	w := newDatagramWorld(t, 1, cable{}, true, 0)
	work := connsOf(t, w.devices[0], 1, random.RD, 20, 256)
	work.Network.GivesUp = true
	if _, err := random.NewEnd(random.Env{}, work, random.A); err == nil || !strings.Contains(err.Error(), "GivesUp") {
		t.Error(err)
	}
}
