package udplink

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
)

func TestMain(m *testing.M) { testutil.NamespaceMain(m) }

// families are loopback addresses. All of 127.0.0.0/8 is local, but only one IPv6 address.
var families = []struct {
	name string
	addr netip.Addr
}{
	{"ipv4", netip.MustParseAddr("127.0.0.2")},
	{"ipv6", netip.MustParseAddr("::1")},
}

// noPatch is a Config.PatchIPID for payloads that do not depend on the identification.
func noPatch([]byte, uint16) {}

func openLink(t testing.TB, cfg Config) *Link {
	t.Helper()
	l := must.Get(Open(cfg))(t)
	t.Cleanup(func() { l.Close() })
	return l
}

// openIn opens a link inside a host's namespace.
func openIn(t testing.TB, h *testutil.Host, cfg Config) *Link {
	t.Helper()
	var l *Link
	must.Do(t, h.Do(func() (err error) {
		l, err = Open(cfg)
		return err
	}))
	t.Cleanup(func() { l.Close() })
	return l
}

func local(l *Link) netip.AddrPort { return l.Info().Local }

// sendAll sends ds and fails the test if the link does not take them all.
func sendAll(t testing.TB, l *Link, ds ...link.Datagram) {
	t.Helper()
	for len(ds) > 0 {
		n := must.Get(l.Send(0, ds))(t)
		ds = ds[n:]
	}
}

// recvN receives n datagrams, up to batch with each call, and copies their payloads.
func recvN(t testing.TB, l *Link, n, batch int) []link.Datagram {
	t.Helper()
	var got []link.Datagram
	ds := make([]link.Datagram, batch)
	for deadline := time.Now().Add(forever); len(got) < n; {
		k := must.Get(l.Recv(0, ds))(t)
		for _, d := range ds[:k] {
			d.Payload = bytes.Clone(d.Payload)
			got = append(got, d)
		}
		if k > 0 {
			continue
		}
		if time.Now().After(deadline) {
			t.Fatalf("received %d of %d datagrams within %v; %+v", len(got), n, forever, l.Stats())
		}
		must.Do(t, l.WaitReadable(100*time.Millisecond))
	}
	if len(got) > n {
		t.Fatalf("received %d datagrams, want %d", len(got), n)
	}
	return got
}

// recvNothing fails the test if a datagram arrives before the fence, a datagram that
// sendFence sends on the same path.
func recvNothing(t testing.TB, l *Link, sendFence func(link.Datagram)) {
	t.Helper()
	fence := []byte("fence")
	sendFence(link.Datagram{Payload: fence})
	if got := recvN(t, l, 1, 1)[0]; !bytes.Equal(got.Payload, fence) {
		t.Errorf("received %d bytes to %v, want nothing", len(got.Payload), got.Dst)
	}
}

// pattern returns n bytes that depend on seed.
func pattern(seed, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(seed*31 + i*7 + i>>8)
	}
	return b
}

func samePayloads(got, want []link.Datagram) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d datagrams, want %d", len(got), len(want))
	}
	for i := range got {
		if !bytes.Equal(got[i].Payload, want[i].Payload) {
			return fmt.Errorf("datagram %d: %d bytes differ from the %d sent", i, len(got[i].Payload), len(want[i].Payload))
		}
	}
	return nil
}

func (o Offload) String() string { return [...]string{"auto", "on", "off"}[o] }
