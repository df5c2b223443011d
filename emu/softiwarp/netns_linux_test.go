package softiwarp

import (
	"net/netip"
	"runtime"
	"testing"

	"github.com/fabrictest/fabrictest/emu/link/tcplink"
	"github.com/fabrictest/fabrictest/internal/nstest"
	"github.com/fabrictest/fabrictest/internal/testutil"
)

func TestMain(m *testing.M) {
	testutil.SetParallel(runtime.GOMAXPROCS(0) + 1) // one waits for silent streams, the others compute
	nstest.Main(m)
}

// hosts are two network namespaces joined by a wire.
type hosts struct {
	a, b *nstest.Host
	v6   bool
}

func newHosts(tb testing.TB, v6 bool) *hosts {
	tb.Helper()
	a, b := nstest.Pair(tb, 9000)
	return &hosts{a: a, b: b, v6: v6}
}

// devices opens a device on each host. They are there only while used: even an
// idle one wakes now and then, and what is compared with must not pay for that.
func (h *hosts) devices(cfg Config) (a, b *Device, err error) {
	open := func(host *nstest.Host) (d *Device, err error) {
		cfg := cfg
		cfg.Addrs = []netip.Addr{host.Addr(h.v6, 0).Addr()}
		err = host.Do(func() (err error) {
			d, err = OnTCP(tcplink.Config{}, cfg)
			return err
		})
		return d, err
	}
	if a, err = open(h.a); err != nil {
		return nil, nil, err
	}
	if b, err = open(h.b); err != nil {
		a.Close()
		return nil, nil, err
	}
	return a, b, nil
}

func TestEchoAcrossNamespaces(t *testing.T) {
	for _, v6 := range []bool{true, false} {
		h := newHosts(t, v6)
		a, b, err := h.devices(Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		defer b.Close()
		if err := echo(a, b, 100); err != nil {
			t.Error(err)
		}
		if p, err := a.QueryPort(1); err != nil || p.ActiveMTU.Bytes() != 4096 {
			t.Errorf("port %+v, %v", p, err)
		}
	}
}
