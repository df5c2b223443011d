package engine

import (
	"slices"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	ddp "github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/verbs"
)

// An answer, or an error message, may come in the flow of a peer when the flow in
// which it was asked for has failed, before anything else is asked. It is an answer
// to nothing. (Found by fuzz.FuzzDatagramPeer: it took the NIC down.)
func TestAnswersToAFlowThatFailedAreDropped(t *testing.T) {
	w, a, b := pair(t, true)
	b.recv(1, 0, 100)
	a.send(b, 1, 10)
	w.run(time.Millisecond)
	n := a.h.nic
	p := n.peerOf(n.rd.PeersOf(a.num)[0])
	p.requester.fail(verbs.WCRetryExcErr)
	for i, op := range []ddp.Opcode{ddp.OpReadResponse, ddp.OpAtomicResponse, ddp.OpTerminate} {
		s := ddp.Segment{Header: ddp.Header{Control: ddp.NewControl(op, true)}}
		if !p.receive(s.Append(nil)) {
			t.Errorf("%v: it is to come again", op)
		}
		if n.Count.DropSegment != uint64(i+1) {
			t.Errorf("%v: %d segments dropped, want %d", op, n.Count.DropSegment, i+1)
		}
	}
}

// Requests that wait until a failed flow is out of the way go before those that are
// posted when it is. (Found by fuzz.FuzzDatagramPeer: the later one went first, then
// a second time, and requests behind it never completed.)
func TestRequestsThatWaitedGoFirst(t *testing.T) {
	w, a, b := pair(t, true)
	for i := range 4 {
		b.recv(uint64(i), 1000*i, 500)
	}
	a.send(b, 1, 10)
	w.run(time.Millisecond)
	n := a.h.nic
	p := n.peerOf(n.rd.PeersOf(a.num)[0])
	w.see = func(*link.Datagram, *wire.Packet) bool { return true } // nothing arrives
	a.send(b, 2, 20)
	w.run(50 * time.Microsecond)
	p.requester.stream.Fail(ddp.TermRDMAPLocal, false)
	a.send(b, 3, 30) // has to wait: something is on its way in the flow
	w.run(50 * time.Microsecond)
	if p.waiting == nil {
		t.Fatal("the third request does not wait")
	}
	p.requester.stream.Drop() // it is not, and nobody says so
	w.see = nil
	a.send(b, 4, 40)
	w.run(time.Second)
	want := []uint32{10, 30, 40} // the second went down with its flow
	for i, wc := range b.got(len(want)) {
		if wc.Status != verbs.WCSuccess || wc.ByteLen != verbs.GRHLen+want[i] {
			t.Errorf("receive %d: %v, %d bytes, want %d", i, wc.Status, wc.ByteLen, verbs.GRHLen+want[i])
		}
	}
	var ids []uint64
	for _, wc := range a.got(4) {
		ids = append(ids, wc.WRID)
	}
	if !slices.Equal(ids, []uint64{1, 2, 3, 4}) {
		t.Errorf("completions of %d", ids)
	}
}
