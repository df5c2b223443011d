package softroce

import (
	"net/netip"
	"testing"

	"github.com/fabrictest/fabrictest/emu/link/udplink"
	"github.com/fabrictest/fabrictest/internal/must"
)

// loopback opens a device on an address of the loopback network, which needs no
// privilege.
func loopback(t testing.TB, addr string, sock udplink.Config) *Device {
	t.Helper()
	d := must.Get(OnUDP(sock, Config{Name: addr, Addrs: []netip.Addr{netip.MustParseAddr(addr)}}))(t)
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func loopbackPair(t testing.TB) (a, b *Device) {
	return loopback(t, "127.71.0.2", udplink.Config{}), loopback(t, "127.71.0.3", udplink.Config{})
}
