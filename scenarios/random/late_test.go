package random_test

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/emu/softiwarp"
	"github.com/fabrictest/fabrictest/scenarios/random"
	"github.com/fabrictest/fabrictest/verbs"
)

// newSmallBufferWorld connects two soft-iWARP devices with small send buffers, which delay
// responses.
func newSmallBufferWorld(t testing.TB, seed uint64) *world {
	t.Helper()
	w := &world{World: sim.New(sim.Config{Seed: seed})}
	port := func(addr string) sim.PortConfig {
		return sim.PortConfig{
			Addrs: []netip.Addr{netip.MustParseAddr(addr)},
			Link:  sim.LinkConfig{RateBps: 1e8, Latency: time.Microsecond, MTU: 4200},
		}
	}
	a, b, err := sim.NewPair(w.World, sim.NetConfig{Stream: sim.StreamConfig{BufferBytes: 4096}}, port("fd00::1"), port("fd00::2"))
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range []*sim.Port{a, b} {
		cfg := softiwarp.Config{Name: fmt.Sprint("host", i)}
		cfg.NIC.MPA.QueueOctets = 4096
		if w.devices[i], err = softiwarp.InWorld(w.World, p, p.StreamHost(), cfg); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// An atomic that waits behind a read response executes after a later message has arrived. A
// program that does not allow for it sees a violation.
func TestIWARPAtomicsMayExecuteAfterLaterMessages(t *testing.T) {
	for _, late := range []bool{true, false} {
		surprised := 0
		for seed := range uint64(4) {
			w := newSmallBufferWorld(t, seed)
			work := connections(t, w.devices[0], seed, 200)
			if !work.Traits.LateAtomics {
				t.Fatal("TraitsOf lacks LateAtomics")
			}
			work.Traits.LateAtomics = late
			for i := range work.Lanes {
				work.Lanes[i].Mix = []verbs.WROpcode{verbs.OpRDMARead, verbs.OpAtomicFetchAdd, verbs.OpSend}
			}
			_, err := w.run(t, work)
			var v *random.Violation
			if errors.As(err, &v) {
				surprised++
				t.Log(v)
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if (surprised > 0) == late {
			t.Errorf("LateAtomics %v: %d of 4 runs with violations", late, surprised)
		}
	}
}
