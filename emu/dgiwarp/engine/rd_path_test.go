package engine

import (
	"slices"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	ddp "github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

func TestRDMarksAreEchoed(t *testing.T) {
	w, a, b := pair(t, true)
	b.recv(1, 0, 100)
	marked, ect := false, true
	w.see = func(d *link.Datagram, k *wire.Packet) bool {
		if k.Flags.Has(wire.FlagData) {
			ect = ect && d.ECNBits() == link.ECT0
			d.TClass |= link.CE
		}
		marked = marked || k.Flags.Has(wire.FlagMarked)
		return false
	}
	a.send(b, 1, 10)
	w.run(time.Millisecond)
	a.ok(1)
	if !ect || !marked {
		t.Errorf("packets with data are ECN-capable %v, marks are echoed %v", ect, marked)
	}
}

// Packets of a flow look as the address handle says that was used last, but for
// the bits of congestion, which are the protocol's; and the receiver is told.
func TestRDFollowsItsAddressHandle(t *testing.T) {
	w, a, b := pair(t, true)
	var seen []uint8
	w.see = func(d *link.Datagram, k *wire.Packet) bool {
		if k.Flags.Has(wire.FlagData) {
			seen = append(seen, d.TClass)
		}
		return false
	}
	for i, class := range []uint8{0x48 | link.CE, 0x20, 0x20} {
		b.recv(1, 0, 100)
		ah, err := a.h.nic.CreateAH(a.h.pd, verbs.AHAttr{Port: 1, GRH: verbs.GRH{DGID: verbs.GIDFrom(b.h.addr), TrafficClass: class}}, 0)
		if err != nil {
			t.Fatal(err)
		}
		wr := verbs.SendWR{Opcode: verbs.OpSend, SGL: a.sge(0, 4), UD: verbs.UD{QPN: verbs.QPN(b.QPN), QKey: testKey}}
		must.Do(t, a.PostSend(w.now, &wr, Refs{AH: ah}))
		seen = nil
		w.run(time.Millisecond)
		wc, want := b.ok(1)[0], class&^link.ECN|link.ECT0
		reply, err := verbs.InitAHFromWC(1, 0, &wc, b.bytes(recvAt, verbs.GRHLen))
		if err != nil || reply.GRH.TrafficClass != want {
			t.Errorf("message %d: the receiver sees class %#x, want %#x; %v", i, reply.GRH.TrafficClass, want, err)
		}
		for _, got := range seen {
			if got != want {
				t.Errorf("message %d: class %#x on the wire, want %#x", i, got, want)
			}
		}
	}
}

// A CQ that overflows while requests fail stops the QP, in the middle of that: none
// of them is lost, and none is ended twice.
func TestRDOverflowWhileRequestsFail(t *testing.T) {
	w := newWorld(t)
	h, dead := w.host(), w.host().own(true)
	w.see = func(*link.Datagram, *wire.Packet) bool { return true }
	small := must.Get(h.nic.CreateCQ(1))(t)
	a := h.own(true, func(c *QPConfig) { c.SendCQ = small })
	for i := range 8 {
		a.send(dead, uint64(i), 10)
	}
	w.run(15 * time.Second)
	if a.state != verbs.QPStateErr || len(a.free) != a.Caps.MaxSendWR || h.nic.Count.Sends != 8 {
		t.Errorf("state %v, %d of %d places free, %d requests ended, want 8", a.state, len(a.free), a.Caps.MaxSendWR, h.nic.Count.Sends)
	}
}

// The same where reads fail because the next request finds that their answers will
// not come: that request too ends, once, and nothing leaves.
func TestRDOverflowWhenAFlowBeginsAnew(t *testing.T) {
	w := newWorld(t)
	h, b := w.host(), w.host().own(true)
	small := must.Get(h.nic.CreateCQ(1))(t)
	a := h.own(true, func(c *QPConfig) { c.SendCQ = small })
	w.see = func(d *link.Datagram, k *wire.Packet) bool {
		if d.Src.Addr() == b.h.addr && k.Kind == wire.KindRD { // acknowledgements arrive, answers do not
			k.Flags &^= wire.FlagData
			k.ULPDU = nil
			d.Payload = k.Append(nil)
		}
		return false
	}
	for i := range 3 {
		a.post(b, verbs.SendWR{WRID: uint64(i), Opcode: verbs.OpRDMARead, SGL: a.sge(0, 10), Remote: verbs.Remote{Addr: b.h.mr.Addr, RKey: verbs.RKey(b.h.mr.Key)}})
	}
	w.run(time.Millisecond)
	if p := h.nic.rd.PeersOf(a.QPN)[0]; p.Waiting() > 0 || h.nic.Count.Sends > 0 {
		t.Fatalf("%d segments wait for acknowledgement, %d requests ended", p.Waiting(), h.nic.Count.Sends)
	}
	w.see = func(*link.Datagram, *wire.Packet) bool { return true }
	w.run(11 * time.Second)
	a.send(b, 3, 10)
	seen := h.nic.Count.Sent
	w.run(time.Second)
	if a.state != verbs.QPStateErr || len(a.free) != a.Caps.MaxSendWR || h.nic.Count.Sends != 4 || h.nic.Count.Sent != seen {
		t.Errorf("state %v, %d of %d places free, %d requests ended, want 4, %d packets left", a.state, len(a.free), a.Caps.MaxSendWR, h.nic.Count.Sends, h.nic.Count.Sent-seen)
	}
}

// An answer, or an error message, may come in the flow of a peer when the flow in
// which it was asked for has failed, before anything else is asked. It is an answer
// to nothing. (Found by fuzz.FuzzDatagramPeer: it took the NIC down.)
func TestAnswersToAFlowThatFailedAreDropped(t *testing.T) {
	w, a, b := pair(t, true)
	b.recv(1, 0, 100)
	a.send(b, 1, 10)
	w.run(time.Millisecond)
	n := a.h.nic
	p := n.peerOf(n.rd.PeersOf(a.QPN)[0])
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
	p := n.peerOf(n.rd.PeersOf(a.QPN)[0])
	w.see = func(*link.Datagram, *wire.Packet) bool { return true } // nothing arrives
	a.send(b, 2, 20)
	w.run(50 * time.Microsecond)
	p.requester.stream.Fail(ddp.TermRDMAPLocal, noTerminate)
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
