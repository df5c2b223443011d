package traffic_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/emu/softroce"
	"github.com/fabrictest/fabrictest/scenarios/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// newShortTimeoutWorld connects two devices by a cable with a delay longer than their
// timeouts. It neither reorders nor loses packets: all duplicates are retransmissions.
func newShortTimeoutWorld(t testing.TB, seed uint64) *world {
	t.Helper()
	w := &world{World: sim.New(sim.Config{Seed: seed})}
	port := func(addr string) sim.PortConfig {
		return sim.PortConfig{
			Addrs: []netip.Addr{netip.MustParseAddr(addr)},
			Link:  sim.LinkConfig{RateBps: 1e9, Latency: 20 * time.Microsecond, MTU: 4200, TxQueueBytes: 8192},
		}
	}
	a, b, err := sim.NewPair(w.World, sim.NetConfig{}, port("fd00::1"), port("fd00::2"))
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range []*sim.Port{a, b} {
		cfg := softroce.Config{Name: fmt.Sprint("host", i)}
		cfg.NIC.Policy.UnlimitedRetries = true
		if w.devices[i], err = softroce.InWorld(w.World, p, p, cfg); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// A requester with a short timeout retransmits READs that are being answered, and later
// invalidates their windows. The retransmissions arrive before the SEND_INV, and must not
// be errors.
func TestPlansTolerateSpuriousRetransmission(t *testing.T) {
	for seed := range uint64(40) {
		work := &traffic.Workload{Seed: seed, CQs: 1, SharedWords: 2}
		for range 2 {
			l := traffic.NewLane(traffic.RC, 100, 16<<10)
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
