package softroce

import (
	"net/netip"
	"testing"

	"github.com/fabrictest/fabrictest/emu/link/udplink"
	"github.com/fabrictest/fabrictest/verbs"
)

// loopback opens a device on an address of the loopback network, which needs no
// privilege.
func loopback(t testing.TB, addr string, sock udplink.Config) *Device {
	t.Helper()
	d, err := OnUDP(sock, Config{Name: addr, Addrs: []netip.Addr{netip.MustParseAddr(addr)}})
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

func TestEchoOverUDPSockets(t *testing.T) {
	a, b := loopbackPair(t)
	errs := make(chan error, 2)
	listening := make(chan struct{})
	go func() { errs <- echoServer(b, 200, func() { close(listening) }) }()
	<-listening
	go func() { errs <- echoClient(a, netip.MustParseAddr("127.71.0.3"), 200) }()
	for range 2 {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	if a.nic.Count.DropICRC != 0 || b.nic.Count.DropICRC != 0 {
		t.Errorf("ICRC errors: %d and %d", a.nic.Count.DropICRC, b.nic.Count.DropICRC)
	}
}

func loopbackPair(t testing.TB) (a, b *Device) {
	return loopback(t, "127.71.0.2", udplink.Config{}), loopback(t, "127.71.0.3", udplink.Config{})
}

// The keys of devices in real time do not count up from the same start.
func TestKeysDifferBetweenDevices(t *testing.T) {
	var keys [2]verbs.RKey
	a, b := loopbackPair(t)
	for i, d := range []*Device{a, b} {
		pd, err := d.AllocPD()
		if err != nil {
			t.Fatal(err)
		}
		mr, err := pd.RegMR(verbs.MRInit{Buf: make([]byte, 8), Access: verbs.AccessLocalWrite})
		if err != nil {
			t.Fatal(err)
		}
		keys[i] = mr.RKey()
	}
	if keys[0] == keys[1] {
		t.Errorf("both devices began with key %#x", uint32(keys[0]))
	}
}
