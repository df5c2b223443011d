package dgiwarp

import (
	"net/netip"
	"testing"

	"github.com/fabrictest/fabrictest/emu/link/udplink"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
)

func TestMain(m *testing.M) { testutil.NamespaceMain(m) }

// hosts are two network namespaces with a link between them.
type hosts struct {
	a, b *testutil.Host
	v6   bool
}

func newHosts(tb testing.TB, v6 bool) *hosts {
	tb.Helper()
	a, b := testutil.HostPair(tb, 9000)
	return &hosts{a: a, b: b, v6: v6}
}

func (h *hosts) host(i int) *testutil.Host {
	if i == 0 {
		return h.a
	}
	return h.b
}

// device opens a device on a host.
func (h *hosts) device(i int, cfg Config) (d *Device, err error) {
	cfg.Addrs = []netip.Addr{h.host(i).Addr(h.v6, 0).Addr()}
	err = h.host(i).Do(func() (err error) {
		d, err = OnUDP(udplink.Config{}, cfg)
		return err
	})
	return d, err
}

// mustDevice opens a device until the end of the test.
func (h *hosts) mustDevice(t testing.TB, i int, cfg Config) *Device {
	t.Helper()
	d := must.Get(h.device(i, cfg))(t)
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// pair opens a device on each host.
func (h *hosts) pair(t testing.TB, cfg Config) [2]*Device {
	t.Helper()
	return [2]*Device{h.mustDevice(t, 0, cfg), h.mustDevice(t, 1, cfg)}
}

func TestEchoAcrossNamespaces(t *testing.T) {
	for _, v6 := range []bool{true, false} {
		for _, opt := range []QPOptions{unreliable, reliable} {
			ds := newHosts(t, v6).pair(t, Config{})
			if err := (exchange{newEnd(t, ds[0], opt), newEnd(t, ds[1], opt), 200}).run(); err != nil {
				t.Errorf("%+v, IPv6 %v: %v", opt, v6, err)
			}
			if p, err := ds[0].QueryPort(1); err != nil || p.ActiveMTU.Bytes() != 4096 {
				t.Errorf("port %+v, %v", p, err)
			}
		}
	}
}
