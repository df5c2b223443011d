package transport

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

func TestRequestsDetectStaleCompletions(t *testing.T) {
	var r Requests[string]
	a, b := r.Add("a"), r.Add("b")
	r.Remove(a)
	c := r.Add("c") // reuses the entry of a
	for _, at := range []struct {
		wrid  uint64
		want  string // "" if it is not posted
		stale bool
	}{{a, "", true}, {b, "b", false}, {c, "c", false}, {5, "", false}} {
		got, stale := r.Find(at.wrid)
		if (got == nil) != (at.want == "") || got != nil && *got != at.want || stale != at.stale {
			t.Errorf("WRID %#x: found %v, stale is %v", at.wrid, got, stale)
		}
	}
	var removed []string
	r.RemoveMatching(func(s *string) bool { return *s == "b" }, func(s string) { removed = append(removed, s) })
	if _, stale := r.Find(b); !slices.Equal(removed, []string{"b"}) || !stale {
		t.Errorf("removed %v; b is stale: %v", removed, stale)
	}
}

// A packet is visible only when it is complete, also when slots are reused.
func TestSlotRingDeliversPacketsInOrder(t *testing.T) {
	const size, count = 64, 3
	mem := make([]byte, size*count)
	in := must.Get(NewSlotRing(mem, size, count))(t)
	out := in
	for i := range 4 * count {
		if b := in.Peek(); b != nil {
			t.Fatalf("packet %d is visible before it is written: % x", i, b)
		}
		want := bytes.Repeat([]byte{byte(i)}, i*5%in.MaxPacket())
		out.write(want)
		if b := in.Peek(); !bytes.Equal(b, want) || b == nil {
			t.Fatalf("packet %d is % x, want % x", i, b, want)
		}
		in.Advance()
	}
	for _, c := range []struct{ bytes, size, count int }{{size, size, 2}, {size, size - 1, 1}} {
		if _, err := NewSlotRing(mem[:c.bytes], c.size, c.count); err == nil {
			t.Errorf("a ring of %d slots of %d bytes in %d bytes", c.count, c.size, c.bytes)
		}
	}
}

// A write with the address and trailer of Next delivers a packet to the slot ring.
func TestRemoteRingMatchesSlotRing(t *testing.T) {
	const size, count, base = 64, 3, 1 << 20
	mem := make([]byte, size*count)
	in := must.Get(NewSlotRing(mem, size, count))(t)
	out := NewRemoteRing(base, 7, size, count)
	if out.HasRoom(out.MaxPacket()+1) || !out.HasRoom(out.MaxPacket()) {
		t.Errorf("longest packet: %d", out.MaxPacket())
	}
	for i := range 3 * count {
		want := []byte{1, 2, byte(i)}
		addr, trailer := out.Next(len(want))
		copy(mem[addr-base:], want)
		*in.trailer() = trailer
		out.Advance()
		if b := in.Peek(); !bytes.Equal(b, want) {
			t.Fatalf("packet %d is % x, want % x", i, b, want)
		}
		in.Advance()
		if i%count == count-1 { // the peer returns all slots at once
			if out.HasRoom(1) {
				t.Fatal("there is room in a full ring")
			}
			out.AddFree(count)
		}
	}
}

func TestSharedRingsCarryPacketsBothWays(t *testing.T) {
	const size, count = 64, 4
	mem := make([]byte, SharedRingsLen(size, count))
	a, errA := NewSharedRings(mem, size, count, true)
	b, errB := NewSharedRings(mem, size, count, false)
	if errA != nil || errB != nil {
		t.Fatal(errA, errB)
	}
	for _, dir := range []struct{ from, to *SharedRings }{{&a, &b}, {&b, &a}} {
		for i := range count {
			if !dir.from.HasRoom(size - TrailerLen) {
				t.Fatalf("no room for packet %d", i)
			}
			dir.from.Write([]byte{byte(i)})
		}
		if dir.from.HasRoom(1) || dir.from.HasRoom(size) {
			t.Error("there is room in a full ring, or for a long packet")
		}
		for i := range count {
			if got := dir.to.Peek(); !bytes.Equal(got, []byte{byte(i)}) {
				t.Fatalf("packet %d is % x", i, got)
			}
			dir.to.Advance()
		}
		if !dir.from.HasRoom(1) || dir.to.Peek() != nil {
			t.Error("the ring is not empty")
		}
	}
}

func TestEndpointsAreFoundByRankAndRail(t *testing.T) {
	all := Endpoints{rails: 2}
	var want []Endpoint
	for i := range 6 {
		e := Endpoint{GID: verbs.GID{15: byte(i)}, QPN: verbs.QPN(i * 1000), Port: uint16(i * 10), MaxMulticast: uint16(i * 100), MTU: verbs.MTU1024}
		want = append(want, e)
		all.encoded = e.append(all.encoded)
	}
	for i, e := range want {
		if got := all.Of(i/2, i%2); got != e {
			t.Errorf("rank %d, rail %d: %+v, want %+v", i/2, i%2, got, e)
		}
	}
}

// resizedCQ is a CQ that only has a depth.
type resizedCQ struct {
	verbs.CQ
	depth int
}

func (q *resizedCQ) Depth() int { return q.depth }

func (q *resizedCQ) Resize(depth int) error {
	q.depth = depth
	return nil
}

func TestReserveCQEsFailsBeyondMaxCQE(t *testing.T) {
	cq := &resizedCQ{depth: 8}
	r := &Rail{Attr: verbs.DeviceAttr{MaxCQE: 20, Caps: verbs.CapResizeCQ}, cq: cq}
	must.Do(t, r.ReserveCQEs(18))
	if err := r.ReserveCQEs(3); err == nil || r.reservedCQEs != 18 || cq.depth != 18 {
		t.Errorf("21 of 20 entries: %v, reserved %d, depth %d; want an error, 18, 18", err, r.reservedCQEs, cq.depth)
	}
	must.Do(t, r.ReserveCQEs(-18))
	must.Do(t, r.ReserveCQEs(20))
	fixed := &Rail{Attr: verbs.DeviceAttr{MaxCQE: 20}, cq: &resizedCQ{depth: 8}}
	must.Do(t, fixed.ReserveCQEs(8))
	if err := fixed.ReserveCQEs(1); !errors.Is(err, verbs.ErrNotSupported) || fixed.reservedCQEs != 8 {
		t.Errorf("9 of 8 entries without resizing: %v, reserved %d", err, fixed.reservedCQEs)
	}
}

// acceptingQP accepts every send request.
type acceptingQP struct{ verbs.QP }

func (acceptingQP) PostSend(wrs []verbs.SendWR) (int, error) { return len(wrs), nil }

// Unsignaled requests complete with the next signaled one, and those after it do not.
func TestUnsignaledRequestsCompleteWithLaterOne(t *testing.T) {
	q := SendQueue{QP: acceptingQP{}, Depth: 8}
	post := func(wrid uint64, flags verbs.SendFlags) {
		*q.Request() = verbs.SendWR{WRID: wrid, Flags: flags}
		must.Do(t, q.Post())
	}
	completed := func(wrid uint64, want ...uint64) {
		t.Helper()
		got := q.CompletedBefore(wrid)
		if !slices.Equal(got, want) {
			t.Errorf("the completion of %d is also that of %d, want %d", wrid, got, want)
		}
		for range len(got) + 1 {
			q.CountCompletion()
		}
	}
	post(1, verbs.SendSignaled)
	post(2, 0)
	post(3, 0)
	post(4, verbs.SendSignaled)
	post(5, 0)
	if q.Unsignaled() != 1 || !q.AwaitsCompletion() {
		t.Errorf("%d requests after the last signaled one; awaits a completion: %v", q.Unsignaled(), q.AwaitsCompletion())
	}
	completed(1)
	completed(4, 2, 3)
	if q.Outstanding() != 1 || q.AwaitsCompletion() {
		t.Errorf("%d requests outstanding after all signaled ones; awaits a completion: %v", q.Outstanding(), q.AwaitsCompletion())
	}
	post(6, verbs.SendSignaled)
	completed(5) // in error: it has a completion of its own
	completed(6)
	if q.Outstanding() != 0 || q.AwaitsCompletion() {
		t.Errorf("%d requests outstanding at the end", q.Outstanding())
	}
}
