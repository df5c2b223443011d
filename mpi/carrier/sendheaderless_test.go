package carrier_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/p2p"
)

// Eager messages of MTU size are sent without a header that equals the previous one, also
// between packets of other transports.
func TestMTUSizedMessageOmitsRepeatedHeader(t *testing.T) {
	const mtu, count = 1024, 100
	link := sim.LinkConfig{RateBps: 10e9, Latency: time.Microsecond, MTU: 1200, OverheadBytes: 38}
	for _, c := range []struct {
		setting
		rails      int
		cfg        carrier.Config
		headerless bool
	}{
		{setting: setting{"softroce", carrier.SRQ, p2p.RGET, 0}, headerless: true},
		{setting: setting{"softroce", carrier.SRQ, p2p.RGET, 20_000}, headerless: true},
		{setting: setting{"softroce", carrier.SendRecv, p2p.RPUT, 5_000}, headerless: true, cfg: carrier.Config{Receives: 8}},
		{setting: setting{"softroce", carrier.RingSendRecv, p2p.Speculative, 5_000}, headerless: true, cfg: carrier.Config{Ring: carrier.Ring{SlotSize: 512}}},
		{setting: setting{"softroce", carrier.Hybrid, p2p.RGET, 5_000}, headerless: true, cfg: carrier.Config{HybridLimits: carrier.HybridLimits{HybridAfter: 20}}},
		{setting: setting{"softroce", carrier.SRQ, p2p.RGET, 0}, rails: 2}, // packets overtake each other
		{setting: setting{"softiwarp", carrier.SRQ, p2p.RGET, 0}},          // no immediate data
		{setting: setting{"softroce", carrier.UD, p2p.RGET, 0}},
	} {
		t.Run(fmt.Sprint(c.setting, c.rails), func(t *testing.T) {
			_, err := runOnFabric(mpihost.Fabric{Ranks: 2, Rails: c.rails, Link: link}, c.setting, c.cfg, func(r *rank) error {
				sizes := []int{mtu, mtu, mtu, 3, mtu, mtu - 5, mtu - 16, mtu, 300, mtu, 5000, mtu}
				for round := range count {
					n := sizes[round%len(sizes)]
					got := make([]byte, n)
					in := &p2p.Request{Peer: 1 - r.Rank, Context: 1, Tag: 5, Buf: got}
					out := &p2p.Request{Peer: 1 - r.Rank, Context: 1, Tag: 5, Buf: pattern(n, round+r.Rank)}
					r.engine.Irecv(in)
					r.engine.Isend(out)
					if err := r.waitAll(in, out); err != nil {
						return fmt.Errorf("message %d of %d bytes: %w", round, n, err)
					}
					if !bytes.Equal(got, pattern(n, round+1-r.Rank)) {
						return fmt.Errorf("message %d of %d bytes has wrong contents", round, n)
					}
				}
				if n := r.Stats().Headerless; (n > 0) != c.headerless {
					t.Errorf("%d messages were sent without header", n)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}
