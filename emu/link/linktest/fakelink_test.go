package linktest

import (
	"net/netip"
	"testing"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

func bench(a, b link.PacketLink) Bench {
	return Bench{
		A: a, B: b,
		AddrA:            netip.MustParseAddrPort("10.0.0.1:50000"),
		AddrB:            netip.MustParseAddrPort("10.0.0.2:4791"),
		TimeAfterArrival: func() mono.Time { return 0 },
	}
}

func TestFakeLink(t *testing.T) {
	TestPacketLink(t, func(*testing.T) Bench {
		a, b := Pair()
		return bench(a, b)
	})
}

func TestFakeLinkWithoutFeatures(t *testing.T) {
	TestPacketLink(t, func(*testing.T) Bench {
		a, b := Pair()
		a.Caps, b.Caps = link.Features{}, link.Features{}
		return bench(a, b)
	})
}

func TestSendStopsAtQueueLimit(t *testing.T) {
	a, b := Pair()
	a.QueueLimit = 3
	bn := bench(a, b)
	ds := make([]link.Datagram, 5)
	for i := range ds {
		ds[i] = bn.datagram([]byte{byte(i)})
	}
	if n, err := a.Send(0, ds); n != 3 || err != nil {
		t.Fatalf("Send = %d, %v, want 3 sent", n, err)
	}
	var got [2]link.Datagram
	if n, _ := b.Recv(0, got[:]); n != 2 || b.Queued() != 1 {
		t.Fatalf("Recv = %d with %d queued, want 2 and 1", n, b.Queued())
	}
	if n, _ := a.Send(0, ds[3:]); n != 2 {
		t.Fatalf("Send = %d, want 2 after Recv freed two", n)
	}
}

func TestRecvInvalidatesEarlierPayloads(t *testing.T) {
	a, b := Pair()
	bn := bench(a, b)
	bn.send(t, bn.datagram([]byte("one")), bn.datagram([]byte("two")))
	var ds [1]link.Datagram
	_, _ = b.Recv(0, ds[:])
	kept := ds[0].Payload
	_, _ = b.Recv(0, ds[:])
	if string(kept) == "one" || string(ds[0].Payload) != "two" {
		t.Fatalf("kept %q, new %q: want the kept payload overwritten", kept, ds[0].Payload)
	}
}

func TestDropSelectsLostDatagrams(t *testing.T) {
	a, b := Pair()
	a.Drop = func(d *link.Datagram) bool { return d.Payload[0] == 'x' }
	bn := bench(a, b)
	bn.send(t, bn.datagram([]byte("x")), bn.datagram([]byte("y")))
	if got := bn.recv(t); len(got) != 1 || string(got[0].Payload) != "y" {
		t.Fatalf("got %v", got)
	}
}
