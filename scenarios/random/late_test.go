package random_test

import (
	"errors"
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
	c := cable{stream: sim.StreamConfig{BufferBytes: 4096}, link: sim.LinkConfig{RateBps: 1e8, Latency: time.Microsecond}}
	return newPair(t, seed, c, func(w *sim.World, p *sim.Port, name string) (verbs.Context, error) {
		cfg := softiwarp.Config{Name: name}
		cfg.NIC.MPA.QueueOctets = 4096
		return softiwarp.InWorld(w, p, p.StreamHost(), cfg)
	})
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
