package tcplink

import (
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/link/linktest"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/must"
)

var families = []struct {
	name string
	addr netip.Addr
}{
	{"IPv4", netip.MustParseAddr("127.0.0.1")},
	{"IPv6", netip.MustParseAddr("::1")},
}

func openNet(tb testing.TB, cfg Config) *Net {
	tb.Helper()
	n := must.Get(Open(cfg))(tb)
	tb.Cleanup(func() { n.Close() })
	return n
}

func TestStreamNet(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			linktest.TestStreamNet(t, func(t *testing.T) linktest.StreamBench {
				a, b := openNet(t, Config{}), openNet(t, Config{})
				return linktest.StreamBench{A: a, B: b, AddrA: f.addr, AddrB: f.addr, Settle: settle(a, b)}
			})
		})
	}
}

// settle sleeps briefly on each net in turn, so that the tests cover WaitReady.
func settle(nets ...*Net) func() mono.Time {
	return func() mono.Time {
		for _, n := range nets {
			n.WaitReady(200 * time.Microsecond)
		}
		return 1
	}
}
