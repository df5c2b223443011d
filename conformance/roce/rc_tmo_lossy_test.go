package roce

import (
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/conformance/packet/ib"
)

// A sound responder, told step by step. PSN 0xFFFFFE is the first.
func TestGoBackAnswers(t *testing.T) {
	const first ib.PSN = 0xfffffe
	g := newGoBack(first, 1024)
	read := ib.ReadRequest(first.Add(3), ib.At(theirs.Addr, theirs.RKey, 1500))
	add := ib.FetchAdd(first.Add(5), ib.At(theirs.Addr, theirs.RKey, 8), 1)
	responses := func(msn uint32) []ib.Packet { return ib.ReadResponses(first.Add(3), msn, g.memory[:1500], 1024) }
	nak := func(k int, msn uint32) []ib.Packet {
		return []ib.Packet{ib.Nak(first.Add(k), ib.NakSequence, msn)}
	}
	ack := func(k int, msn uint32) []ib.Packet { return []ib.Packet{ib.Ack(first.Add(k), msn)} }
	atomicAck := []ib.Packet{ib.AtomicAck(first.Add(5), 3, 0)}

	steps := []struct {
		name    string
		request ib.Packet
		want    []ib.Packet
	}{
		{"the beginning of a message is not acknowledged", ib.SendFirst(first, make([]byte, 1024)), nil},
		{"a gap is told", ib.SendLast(first.Add(2), []byte{1}).AckReq(), nak(1, 0)},
		{"and told once", read, nil},
		{"until it is filled", ib.SendMiddle(first.Add(1), make([]byte, 1024)).AckReq(), ack(1, 0)},
		{"and the next is told again", read, nak(2, 0)},
		{"the end of a message counts", ib.SendLast(first.Add(2), []byte{1}).AckReq(), ack(2, 1)},
		{"a READ is answered", read, responses(2)},
		{"and has taken two PSNs", add, atomicAck},
		{"a duplicate READ is answered again", read, responses(3)},
		{
			"the end of one is a READ of its own", ib.ReadRequest(first.Add(4), ib.At(theirs.Addr, theirs.RKey, 1500).Skip(1024)),
			ib.ReadResponses(first.Add(4), 3, g.memory[1024:1500], 1024),
		},
		{"a duplicate atomic has the answer that it had", add, atomicAck},
		{"a duplicate SEND is acknowledged with what is newest", ib.SendMiddle(first.Add(1), make([]byte, 1024)), ack(5, 3)},
	}
	for _, s := range steps {
		got := g.answer(s.request)
		if !slices.EqualFunc(got, s.want, func(a, b ib.Packet) bool { return slices.Equal(a.Build(), b.Build()) }) {
			t.Errorf("%s: %v is answered by %v, want %v", s.name, s.request, got, s.want)
		}
	}
}

// After a READ, duplicates of what came before it are not acknowledged with its PSN.
func TestGoBackDoesNotAcknowledgeReads(t *testing.T) {
	g := newGoBack(100, 1024)
	g.answer(ib.SendOnly(100, nil))
	g.answer(ib.ReadRequest(101, ib.At(theirs.Addr, theirs.RKey, 8)))
	if got := g.answer(ib.SendOnly(100, nil)); len(got) != 1 || got[0].PSN() != 100 {
		t.Errorf("the duplicate of 100 is answered by %v, want an ACK with PSN 100", got)
	}
}
