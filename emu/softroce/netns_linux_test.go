package softroce

import (
	"net/netip"
	"testing"

	"github.com/fabrictest/fabrictest/emu/link/udplink"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
)

func TestMain(m *testing.M) { testutil.NamespaceMain(m) }

// devicesOnHosts opens a device on each of two hosts in network namespaces.
func devicesOnHosts(t *testing.T) (ha, hb *testutil.Host, da, db *Device) {
	t.Helper()
	ha, hb = testutil.HostPair(t, 9000)
	open := func(h *testutil.Host) (d *Device) {
		must.Do(t, h.Do(func() (err error) {
			d, err = OnUDP(udplink.Config{}, Config{Addrs: []netip.Addr{h.V6}})
			return err
		}))
		t.Cleanup(func() { d.Close() })
		return d
	}
	return ha, hb, open(ha), open(hb)
}
