package shmlink

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/internal/must"
)

// build places payloads in a buffer as link.InPlaceLink demands, and returns their datagrams.
func build(t testing.TB, b []byte, dst []int, payloads ...[]byte) []link.Datagram {
	t.Helper()
	ds := make([]link.Datagram, len(payloads))
	at := 0
	for i, p := range payloads {
		if at+len(p) > len(b) {
			t.Fatalf("packet %d of %d bytes ends at %d, the buffer at %d", i, len(p), at+len(p), len(b))
		}
		ds[i] = text(addr(dst[i], 0), "")
		ds[i].Payload = b[at : at+copy(b[at:], p)]
		at += link.PlaceAfter(len(p))
	}
	return ds
}

// Packets that are built in the memory of the cable are not copied: they are sent from where they are.
func TestPacketsBuiltInPlaceAreNotCopied(t *testing.T) {
	f := newCable(t, 2, Config{RingBytes: minRing})
	a, b := openLink(t, f, addr(0, 0)), openLink(t, f, addr(1, 0))
	if a.SendBuffer(8, 4096) != nil {
		t.Error("the link has a buffer, but no destination")
	}
	send(t, a, text(addr(1, 0), "first"))
	ds := build(t, a.SendBuffer(8, 4096), []int{1, 1}, bytes.Repeat([]byte("x"), 4096), []byte("short"))
	at := b.in[0].next + recordBytes(len("first")) // of the first record
	if !bytes.Equal(b.in[0].data[at+headerBytes:][:4096], ds[0].Payload) {
		t.Error("the packet is not in the ring before it is sent")
	}
	if got := recv(t, b); len(got) != 1 {
		t.Errorf("received %d datagrams before Send", len(got)-1)
	}
	send(t, a, ds...)
	if got := recv(t, b); len(got) != 2 || len(got[0]) != 4096 || got[1] != "short" {
		t.Errorf("received %d datagrams", len(got))
	}
	if got := a.SendBuffer(1000, 4096); len(got) < minRing/2 || len(got) > minRing {
		t.Errorf("an empty ring of %d bytes has a buffer of %d", minRing, len(got))
	}
}

// Packets of a batch arrive unchanged, whether they are built in place or not and whatever ring they
// are for, and stay unchanged until the next Recv.
func TestPacketsBuiltInPlaceArrive(t *testing.T) {
	const maxLen = 3000
	f := newCable(t, 3, Config{RingBytes: minRing})
	a, peers := openLink(t, f, addr(0, 0)), [3]*Link{1: openLink(t, f, addr(1, 0)), 2: openLink(t, f, addr(2, 0))}
	rng := rand.New(rand.NewPCG(1, 2))
	own := make([]byte, 8*link.PlaceAfter(maxLen))
	var sent, received [3]uint64
	check := func(port int) {
		var in [9]link.Datagram
		got := in[:must.Get(peers[port].Recv(1, in[:]))(t)]
		for i := range got {
			p := got[i].Payload
			if n := binary.LittleEndian.Uint64(p); n != received[port] || bytes.Count(p[8:], []byte{byte(n)}) != len(p)-8 {
				t.Fatalf("port %d: packet %d of %d bytes is %d or has other bytes", port, received[port], len(p), n)
			}
			received[port]++
		}
	}
	peers[1].AllowInPlace()
	inPlace := 0
	for range 4000 {
		buffer := a.SendBuffer(8, maxLen)
		fit := (len(buffer) + link.PlaceAfter(0)) / link.PlaceAfter(maxLen)
		if inPlace += fit; fit == 0 {
			buffer, fit = own, 8
		}
		var payloads [][]byte
		var dst []int
		for range 1 + rng.IntN(fit) {
			to := 1 + min(rng.IntN(8), 1) // mostly 2
			p := bytes.Repeat([]byte{byte(sent[to])}, 8+rng.IntN(maxLen-8))
			binary.LittleEndian.PutUint64(p, sent[to])
			sent[to]++
			payloads, dst = append(payloads, p), append(dst, to)
		}
		for ds := build(t, buffer, dst, payloads...); len(ds) > 0; check(1 + rng.IntN(2)) {
			ds = ds[must.Get(a.Send(1, ds))(t):]
		}
	}
	for range 200 {
		check(1)
		check(2)
	}
	if received != sent || inPlace == 0 {
		t.Errorf("received %v of %v, %d places", received, sent, inPlace)
	}
}

// A long payload stays in the ring, unchanged, until the next Recv. Meanwhile the link is not readable.
func TestLongPayloadsAreReceivedInPlace(t *testing.T) {
	f := newCable(t, 2, Config{RingBytes: minRing})
	a, b := openLink(t, f, addr(0, 0)), openLink(t, f, addr(1, 0))
	b.AllowInPlace()
	want := strings.Repeat("x", 4096)
	send(t, a, text(addr(1, 0), "short"), text(addr(1, 0), want))
	var in [5]link.Datagram
	if n := must.Get(b.Recv(1, in[:]))(t); n != 2 || b.readable() {
		t.Fatalf("%d datagrams, readable %v", n, b.readable())
	}
	other := text(addr(1, 0), strings.Repeat("y", 4096))
	for must.Get(a.Send(1, []link.Datagram{other}))(t) == 1 { // until the ring is full
	}
	if string(in[0].Payload) != "short" || string(in[1].Payload) != want || !b.readable() {
		t.Error("a payload has changed before the next Recv, or the link is not readable")
	}
	inside := b.in[0].data
	if at := &in[1].Payload[0]; at != &inside[recordBytes(len("short"))+headerBytes] {
		t.Error("the long payload is not in the ring")
	}
	if n := len(recv(t, b)); n < 10 || b.readable() {
		t.Errorf("then %d datagrams", n)
	}
}

// Neither side allocates memory for packets.
func TestLinkInPlaceDoesNotAllocate(t *testing.T) {
	f := newCable(t, 2, Config{})
	a, b := openLink(t, f, addr(0, 0)), openLink(t, f, addr(1, 0))
	b.AllowInPlace()
	ds, in := make([]link.Datagram, 8), make([]link.Datagram, 64)
	send(t, a, text(addr(1, 0), "first"))
	if n := testing.AllocsPerRun(500, func() { transfer(t, a, b, ds, in, 4096) }); n != 0 {
		t.Errorf("%v allocations for %d datagrams", n, len(ds))
	}
}

// transfer sends datagrams of a length in the memory of the cable, as many of ds as it has room for,
// and receives them.
func transfer(t testing.TB, a, b *Link, ds, in []link.Datagram, bytes int) {
	buffer, place := a.SendBuffer(len(ds), bytes), link.PlaceAfter(bytes)
	fit := min(len(ds), (len(buffer)+link.PlaceAfter(0))/place)
	for i := range fit {
		ds[i] = link.Datagram{Src: addr(0, 0), Dst: addr(1, 0), Payload: buffer[i*place:][:bytes]}
	}
	if n := must.Get(a.Send(1, ds[:fit]))(t); n != fit {
		t.Fatalf("sent %d of %d datagrams", n, fit)
	}
	for left := fit; left > 0; {
		left -= must.Get(b.Recv(1, in))(t)
	}
}

// BenchmarkInPlace is a batch of long packets that are not copied.
func BenchmarkInPlace(b *testing.B) {
	const size = 4200
	f := newCable(b, 2, Config{})
	tx, rx := openLink(b, f, addr(0, 0)), openLink(b, f, addr(1, 0))
	rx.AllowInPlace()
	ds, in := make([]link.Datagram, 16), make([]link.Datagram, 64)
	send(b, tx, text(addr(1, 0), "first"))
	recv(b, rx)
	b.SetBytes(int64(len(ds) * size))
	for b.Loop() {
		transfer(b, tx, rx, ds, in, size)
	}
}
