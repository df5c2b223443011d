package softiwarp

import (
	"net/netip"
	"testing"

	"github.com/fabrictest/fabrictest/emu/link/tcplink"
)

// loopback opens a device on an address of the loopback network, which needs no
// privilege.
func loopback(t testing.TB, addr string, cfg Config) *Device {
	t.Helper()
	cfg.Name, cfg.Addrs = addr, []netip.Addr{netip.MustParseAddr(addr)}
	d, err := OnTCP(tcplink.Config{}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func loopbackPair(t testing.TB) (a, b *Device) {
	return loopback(t, "127.81.0.2", Config{}), loopback(t, "127.81.0.3", Config{})
}

// echo runs the echo programs in real time.
func echo(a, b *Device, n int) error {
	errs := make(chan error, 2)
	listening := make(chan struct{})
	go func() { errs <- echoServer(b, n, func() { close(listening) }) }()
	select {
	case <-listening:
	case err := <-errs:
		return err
	}
	go func() { errs <- echoClient(a, b.cfg.Addrs[0], n) }()
	for range 2 {
		if err := <-errs; err != nil {
			return err
		}
	}
	return nil
}

func TestEchoOverTCPSockets(t *testing.T) {
	a, b := loopbackPair(t)
	if err := echo(a, b, 200); err != nil {
		t.Fatal(err)
	}
	for _, d := range []*Device{a, b} {
		for _, name := range []string{"mpa_bad_crcs", "conns_failed", "sent_terminates"} {
			if n := counter(d, name); n != 0 {
				t.Errorf("%s of %s is %d", name, d.Name(), n)
			}
		}
	}
}
