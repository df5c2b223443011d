package udplink

import (
	"net/netip"
	"testing"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/internal/must"
)

// openWithSourcePort opens two links on loopback with SeparateSourcePort.
func openWithSourcePort(t *testing.T, addr string) *Link {
	t.Helper()
	l := must.Get(Open(Config{Local: netip.MustParseAddrPort(addr), SeparateSourcePort: true, PatchIPID: func([]byte, uint16) {}}))(t)
	t.Cleanup(func() { l.Close() })
	return l
}

// passOne sends one datagram and returns it as received.
func passOne(t *testing.T, from, to *Link, payload string) link.Datagram {
	t.Helper()
	ds := []link.Datagram{{Dst: local(to), Payload: []byte(payload), TClass: 0, HopLimit: 0}}
	if n, err := from.Send(0, ds); n != 1 || err != nil {
		t.Fatalf("sent %d, %v", n, err)
	}
	got := make([]link.Datagram, 4)
	for range 1000 {
		must.Do(t, to.WaitReadable(1e9))
		if n, err := to.Recv(0, got); err != nil || n > 0 {
			if n != 1 || string(got[0].Payload) != payload {
				t.Fatalf("%d datagrams, %q, %v", n, got[0].Payload, err)
			}
			return got[0]
		}
	}
	t.Fatal("nothing arrived")
	return link.Datagram{}
}

func TestSeparateSourcePortIsTheOnlySource(t *testing.T) {
	a, b, c := openWithSourcePort(t, "[::1]:0"), openWithSourcePort(t, "[::1]:0"), openWithSourcePort(t, "[::1]:0")
	if i := a.Info(); i.Source.Port() == i.Local.Port() || i.Source.Port() == 0 || a.Features().SrcPort != i.Source.Port() {
		t.Fatalf("info %+v, features %+v", i, a.Features())
	}
	// Before and after it connects, to one peer and to another and back again,
	// in batches and alone.
	for round := range 3 {
		for _, to := range []*Link{b, c, b} {
			for i := range connectAfter + 10 {
				d := passOne(t, a, to, "x")
				if d.Src != a.Info().Source || d.Dst != local(to) {
					t.Fatalf("round %d, datagram %d: from %v to %v, want from %v", round, i, d.Src, d.Dst, a.Info().Source)
				}
			}
			if !a.source.usePeer {
				t.Fatal("many datagrams to one peer did not make it connect")
			}
			batch := []link.Datagram{{Dst: local(to), Payload: []byte("12")}, {Dst: local(to), Payload: []byte("12")}, {Dst: local(to), Payload: []byte("123")}}
			if n, err := a.Send(0, batch); n != 3 || err != nil {
				t.Fatal(n, err)
			}
			got := make([]link.Datagram, 1)
			for n := 0; n < 3; {
				k, err := to.Recv(0, got)
				if err != nil || k > 0 && got[0].Src != a.Info().Source {
					t.Fatalf("of a batch: %+v, %v", got[0], err)
				}
				n += k
			}
		}
	}
	if lost := a.Stats(); lost.Lost() != 0 || lost.SendFull != 0 {
		t.Errorf("stats %+v", lost)
	}
}

// A connected socket reports ECONNREFUSED. No more datagrams are lost than without it.
func TestConnectedSourceSurvivesClosedPeer(t *testing.T) {
	a, b := openWithSourcePort(t, "[::1]:0"), openWithSourcePort(t, "[::1]:0")
	for range connectAfter + 1 {
		passOne(t, a, b, "x")
	}
	addr := local(b)
	b.Close()
	ds := []link.Datagram{{Dst: addr, Payload: []byte("lost")}}
	for range 5 {
		if n, err := a.Send(0, ds); n != 1 || err != nil {
			t.Fatalf("sent %d, %v", n, err)
		}
	}
	back := must.Get(Open(Config{Local: addr}))(t)
	defer back.Close()
	for range 5 {
		passOne(t, a, back, "again")
	}
}

func TestSeparateSourcePortIsIPv6Only(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", "[::]:0"} {
		l := must.Get(Open(Config{Local: netip.MustParseAddrPort(addr), SeparateSourcePort: true, MTU: 1500}))(t)
		if i := l.Info(); i.Source != i.Local {
			t.Errorf("%s: sends from %v", addr, i.Source)
		}
		l.Close()
	}
}
