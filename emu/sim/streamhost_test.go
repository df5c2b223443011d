package sim

import (
	"net/netip"
	"testing"

	"github.com/fabrictest/fabrictest/emu/link/linktest"
	"github.com/fabrictest/fabrictest/emu/mono"
)

func TestStreamHostImplementsStreamNet(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		for _, cut := range []uint32{0, 400_000} {
			linktest.TestStreamNet(t, func(t *testing.T) linktest.StreamBench {
				w := New(Config{Seed: 1})
				t.Cleanup(w.Close)
				n := newNet(t, w, NetConfig{Stream: StreamConfig{CutPPM: cut, BufferBytes: 64 << 10}})
				addrs := []netip.Addr{addrOf(0), addrOf(1)}
				if v6 {
					addrs = []netip.Addr{netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")}
				}
				link := LinkConfig{RateBps: 10e9, Latency: 1000}
				a := attach(t, n, PortConfig{Addrs: addrs[:1], Link: link})
				b := attach(t, n, PortConfig{Addrs: addrs[1:], Link: link})
				return linktest.StreamBench{
					A: a.StreamHost(), B: b.StreamHost(), AddrA: addrs[0], AddrB: addrs[1],
					Settle: func() mono.Time { mustRun(t, w); return w.Now() },
				}
			})
		}
	}
}
