package mpihost

import (
	"errors"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/verbs"
)

// Data arrives on every provider and rail, between and within hosts, also with loss.
func TestNICsCarryData(t *testing.T) {
	for _, provider := range nics.Names() {
		for name, f := range map[string]Fabric{
			"clean": {Ranks: 5, PerHost: 2, Rails: 2},
			"IPv4":  {Ranks: 3, IPv4: true},
			"lossy": {Ranks: 4, PerHost: 2, Impair: []impair.Spec{{LossPPM: 20_000}}},
		} {
			f.Provider, f.Seed = provider, 3
			run := func() (Outcome, error) {
				return InWorld(f, func(e *transport.Env) error { return allToAll(e, 8) })
			}
			first, err := run()
			if err != nil {
				t.Errorf("%s, %s: %v", provider, name, err)
				for i, r := range first.Ranks {
					t.Logf("rank %d: %v", i, r.Err)
				}
				continue
			}
			again, err := run()
			if err != nil || again.Elapsed != first.Elapsed || again.Events != first.Events {
				t.Errorf("%s, %s: second run: %v in %v with %d events, want %v with %d", provider, name, err,
					again.Elapsed, again.Events, first.Elapsed, first.Events)
			}
		}
	}
}

// Requests to a killed rank fail, and other ranks on its host continue.
func TestQueuePairsCloseWithRank(t *testing.T) {
	for _, provider := range nics.NamesWith(func(p *nics.Provider) bool { return p.Caps.Has(verbs.CapRC) }) {
		f := Fabric{Ranks: 4, PerHost: 2, Provider: provider, Limit: time.Hour, Script: func(w *World) {
			w.At(30*time.Microsecond, func() { w.Kill(3) })
		}}
		out, err := InWorld(f, func(e *transport.Env) error { return allToAll(e, 400) })
		var h *HungError
		if err == nil || errors.As(err, &h) || !out.Ranks[3].Killed || out.Ranks[0].Err == nil || out.Elapsed > time.Second {
			t.Errorf("%s: %v after %v\n%+v", provider, err, out.Elapsed, out.Ranks)
		}
	}
}

func TestLinkDownAndUp(t *testing.T) {
	f := Fabric{Ranks: 4, PerHost: 2, Impair: []impair.Spec{{LossPPM: 10_000}}, Script: func(w *World) {
		w.At(20*time.Microsecond, func() { w.LinkDown(0, -1) })
		w.At(3*time.Millisecond, func() { w.LinkUp(0, -1) })
		if w.Host(3) != 1 || w.Now() != 0 || w.Device(1, 0).Info().Name != "host1/rdma0" {
			t.Errorf("%+v", w)
		}
	}}
	out, err := InWorld(f, func(e *transport.Env) error { return allToAll(e, 60) })
	if err != nil || out.Elapsed < 3*time.Millisecond {
		t.Errorf("%v after %v", err, out.Elapsed)
	}
}

func TestCloseKeepsDeviceOfHost(t *testing.T) {
	_, err := InWorld(Fabric{Ranks: 2, PerHost: 2}, func(e *transport.Env) error {
		if e.Rank == 0 {
			must.Do(t, e.NICs[0].Device.Close())
		}
		must.Do(t, e.Control.Barrier(verbs.Forever))
		return must.Err(e.NICs[0].Device.AllocPD())
	})
	if err != nil {
		t.Error(err)
	}
}
