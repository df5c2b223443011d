package random_test

import (
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/emu/softroce"
	"github.com/fabrictest/fabrictest/scenarios/random"
	"github.com/fabrictest/fabrictest/verbs"
)

// newShortTimeoutWorld connects two devices by a cable with a delay longer than their
// timeouts. It neither reorders nor loses packets: all duplicates are retransmissions.
func newShortTimeoutWorld(t testing.TB, seed uint64) *world {
	t.Helper()
	c := cable{link: sim.LinkConfig{RateBps: 1e9, Latency: 20 * time.Microsecond, TxQueueBytes: 8192}}
	return newPair(t, seed, c, func(w *sim.World, p *sim.Port, name string) (verbs.Context, error) {
		cfg := softroce.Config{Name: name}
		cfg.NIC.Policy.UnlimitedRetries = true
		return softroce.InWorld(w, p, p, cfg)
	})
}

// A requester with a short timeout retransmits READs that are being answered, and later
// invalidates their windows. The retransmissions arrive before the SEND_INV, and must not
// be errors.
func TestPlansTolerateSpuriousRetransmission(t *testing.T) {
	for seed := range uint64(40) {
		work := &random.Workload{Seed: seed, CQs: 1, SharedWords: 2}
		for range 2 {
			l := random.NewLane(random.RC, 100, 16<<10)
			l.Timeout, l.Windows, l.SignalEvery = 3+uint8(seed%4), 16, 1 // 33 µs to 0.26 ms
			l.Mix = append(l.Mix, verbs.OpRDMARead, verbs.OpRDMARead, verbs.OpSendInv)
			work.Lanes = append(work.Lanes, l)
		}
		results, err := newShortTimeoutWorld(t, seed).run(t, work)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for _, r := range results {
			if r.Counter("duplicate_request") == 0 {
				t.Errorf("seed %d: no request was retransmitted", seed)
			}
		}
	}
}
