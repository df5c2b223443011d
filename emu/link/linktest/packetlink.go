package linktest

import (
	"bytes"
	"errors"
	"net/netip"
	"testing"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// Bench is a pair of links under test.
type Bench struct {
	A, B link.PacketLink
	// AddrA and AddrB are the addresses of A and B.
	AddrA, AddrB netip.AddrPort
	// TimeAfterArrival waits until all datagrams that were sent have arrived, and returns the time.
	TimeAfterArrival func() mono.Time
}

// TestPacketLink tests two joined links against the documentation of link.PacketLink, and
// against their Features. open returns new links for each subtest.
func TestPacketLink(t *testing.T, open func(t *testing.T) Bench) {
	for _, c := range []struct {
		name string
		run  func(*testing.T, Bench)
	}{
		{"a new link has no datagrams", emptyLink},
		{"datagrams arrive whole and in order", inOrder},
		{"the sender may reuse its buffer", reusedBuffer},
		{"headers arrive as Features says", headers},
		{"a datagram beyond the MTU is taken and lost", exceedsMTU},
		{"a datagram of the MTU arrives", func(t *testing.T, b Bench) { arrives(t, b, b.maxPayload()) }},
		{"an empty datagram arrives", func(t *testing.T, b Bench) { arrives(t, b, 0) }},
		{"a closed link returns ErrClosed", closedLink},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, open(t)) })
	}
}

// datagram returns a datagram from A to B.
func (b *Bench) datagram(payload []byte) link.Datagram {
	return link.Datagram{Src: b.AddrA, Dst: b.AddrB, IPID: link.IPIDUnknown, Payload: payload}
}

// send sends datagrams from A after all earlier ones have arrived. The link must take them all.
func (b *Bench) send(t *testing.T, ds ...link.Datagram) {
	t.Helper()
	now := b.TimeAfterArrival()
	if n, err := b.A.Send(now, ds); n != len(ds) || err != nil {
		t.Fatalf("Send took %d of %d datagrams: %v", n, len(ds), err)
	}
}

// recv returns copies of the datagrams that B has received.
func (b *Bench) recv(t *testing.T) (all []link.Datagram) {
	t.Helper()
	now := b.TimeAfterArrival()
	var ds [3]link.Datagram
	for {
		n, err := b.B.Recv(now, ds[:])
		if err != nil {
			t.Fatalf("Recv: %v", err)
		}
		if n == 0 {
			return all
		}
		for _, d := range ds[:n] {
			d.Payload = bytes.Clone(d.Payload)
			all = append(all, d)
		}
	}
}

// emptyLink: a new link has no datagrams, and sending none succeeds.
func emptyLink(t *testing.T, b Bench) {
	if got := b.recv(t); len(got) != 0 {
		t.Fatalf("%d datagrams received, want none", len(got))
	}
	now := b.TimeAfterArrival()
	if n, err := b.A.Send(now, nil); n != 0 || err != nil {
		t.Fatalf("Send of no datagrams = %d, %v", n, err)
	}
}

// inOrder: datagrams arrive whole and in order.
func inOrder(t *testing.T, b Bench) {
	ds := make([]link.Datagram, 0, 20)
	for i := range 20 {
		ds = append(ds, b.datagram(bytes.Repeat([]byte{byte(i)}, 1+17*i)))
	}
	b.send(t, ds...)
	got := b.recv(t)
	if len(got) != len(ds) {
		t.Fatalf("%d of %d datagrams arrived", len(got), len(ds))
	}
	for i, d := range got {
		if !bytes.Equal(d.Payload, ds[i].Payload) {
			t.Errorf("datagram %d: payload % x, want % x", i, d.Payload, ds[i].Payload)
		}
		if d.Src != b.AddrA || d.Dst != b.AddrB {
			t.Errorf("datagram %d: %v > %v, want %v > %v", i, d.Src, d.Dst, b.AddrA, b.AddrB)
		}
	}
}

// reusedBuffer: the sender may reuse its buffer.
func reusedBuffer(t *testing.T, b Bench) {
	buf := []byte("first")
	b.send(t, b.datagram(buf))
	copy(buf, "xxxxx")
	if got := b.recv(t); len(got) != 1 || string(got[0].Payload) != "first" {
		t.Fatalf("got %+v, want the bytes at the time of Send", got)
	}
}

// headers: traffic class, hop limit and IPv4 identification arrive if Features of the sender says
// that it sets them, and Features of the receiver that it sees them. An identification that the
// sender does not set is 0.
func headers(t *testing.T, b Bench) {
	d := b.datagram([]byte("headers"))
	d.TClass, d.HopLimit, d.IPID = 0b101_10, 17, 0x1234 // arbitrary values; the traffic class has DSCP 5 and ECN 2
	b.send(t, d)
	all := b.recv(t)
	if len(all) != 1 {
		t.Fatalf("%d datagrams arrived", len(all))
	}
	got, sender, receiver := all[0], b.A.Features(), b.B.Features()
	if sender.SetsHeader && receiver.SeesHeader && (got.TClass != d.TClass || got.HopLimit != d.HopLimit) {
		t.Errorf("traffic class %#x, hop limit %d, want %#x, %d", got.TClass, got.HopLimit, d.TClass, d.HopLimit)
	}
	if !d.Is4() {
		return
	}
	want := uint32(0)
	if sender.SetsIPID {
		want = d.IPID
	}
	if !receiver.SeesIPID {
		want = link.IPIDUnknown
	}
	if got.IPID != want {
		t.Errorf("identification %#x, want %#x", got.IPID, want)
	}
}

// maxPayload returns the longest payload of a datagram within the MTU.
func (b *Bench) maxPayload() int {
	empty := b.datagram(nil)
	return b.A.MTU() - empty.IPBytes()
}

// exceedsMTU: a datagram beyond the MTU is taken and lost.
func exceedsMTU(t *testing.T, b Bench) {
	b.send(t, b.datagram(make([]byte, b.maxPayload()+1)), b.datagram([]byte("next")))
	if got := b.recv(t); len(got) != 1 || string(got[0].Payload) != "next" {
		t.Fatalf("got %d datagrams, want only the second", len(got))
	}
}

// arrives checks that a datagram with a payload of size bytes arrives.
func arrives(t *testing.T, b Bench, size int) {
	b.send(t, b.datagram(make([]byte, size)))
	if got := b.recv(t); len(got) != 1 || len(got[0].Payload) != size {
		t.Fatalf("got %d datagrams, want one of %d bytes", len(got), size)
	}
}

// closedLink: Send, Recv and Close of a closed link return ErrClosed.
func closedLink(t *testing.T, b Bench) {
	if err := b.A.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	var ds [1]link.Datagram
	now := b.TimeAfterArrival()
	_, sendErr := b.A.Send(now, []link.Datagram{b.datagram([]byte("x"))})
	now = b.TimeAfterArrival()
	_, recvErr := b.A.Recv(now, ds[:])
	for _, err := range []error{sendErr, recvErr, b.A.Close()} {
		if !errors.Is(err, link.ErrClosed) {
			t.Errorf("after Close: %v, want ErrClosed", err)
		}
	}
}
