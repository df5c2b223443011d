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

func TestRDEchoesECNMarks(t *testing.T) {
	w, a, b := pair(t, true)
	b.recv(1, 0, 100)
	marked, ect := false, true
	w.intercept = func(d *link.Datagram, k *wire.Packet) bool {
		if k.Flags.Has(wire.FlagData) {
			ect = ect && d.ECNBits() == link.ECT0
			d.TClass |= link.CE
		}
		marked = marked || k.Flags.Has(wire.FlagMarked)
		return false
	}
	a.send(b, 1, 10)
	w.run(time.Millisecond)
	a.expectSuccess(1)
	if !ect || !marked {
		t.Errorf("data packets are ECN-capable: %v; marks are echoed: %v", ect, marked)
	}
}

// Packets of a flow have the traffic class of the last address handle, except for the ECN bits.
// The receiver sees the class in the GRH.
func TestRDUsesTrafficClassOfLastAddressHandle(t *testing.T) {
	w, a, b := pair(t, true)
	var classes []uint8
	w.intercept = func(d *link.Datagram, k *wire.Packet) bool {
		if k.Flags.Has(wire.FlagData) {
			classes = append(classes, d.TClass)
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
		classes = nil
		w.run(time.Millisecond)
		wc, want := b.expectSuccess(1)[0], class&^link.ECN|link.ECT0
		reply, err := verbs.InitAHFromWC(1, 0, &wc, b.bytes(recvAt, verbs.GRHLen))
		if err != nil || reply.GRH.TrafficClass != want {
			t.Errorf("message %d: the receiver sees class %#x, want %#x; %v", i, reply.GRH.TrafficClass, want, err)
		}
		for _, got := range classes {
			if got != want {
				t.Errorf("message %d: class %#x on the wire, want %#x", i, got, want)
			}
		}
	}
}

// If the CQ overflows while requests fail, the QP moves to error, and each request ends once.
func TestRDCQOverflowWhileRequestsFail(t *testing.T) {
	w := newNetwork(t)
	h, unreachable := w.host(), w.host().newQP(true)
	w.intercept = func(*link.Datagram, *wire.Packet) bool { return true }
	small := must.Get(h.nic.CreateCQ(1))(t)
	a := h.newQP(true, func(c *QPConfig) { c.SendCQ = small })
	for i := range 8 {
		a.send(unreachable, uint64(i), 10)
	}
	w.run(15 * time.Second)
	if a.state != verbs.QPStateErr || len(a.free) != a.Caps.MaxSendWR || h.nic.Count.Sends != 8 {
		t.Errorf("state %v, %d of %d entries free, %d requests ended, want 8", a.state, len(a.free), a.Caps.MaxSendWR, h.nic.Count.Sends)
	}
}

// The same if READs fail because the next request restarts the flow: that request also ends once,
// and no packet is sent.
func TestRDCQOverflowWhenFlowRestarts(t *testing.T) {
	w := newNetwork(t)
	h, b := w.host(), w.host().newQP(true)
	small := must.Get(h.nic.CreateCQ(1))(t)
	a := h.newQP(true, func(c *QPConfig) { c.SendCQ = small })
	w.intercept = func(d *link.Datagram, k *wire.Packet) bool {
		if d.Src.Addr() == b.h.addr && k.Kind == wire.KindRD { // acknowledgements arrive, responses do not
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
	w.intercept = func(*link.Datagram, *wire.Packet) bool { return true }
	w.run(11 * time.Second)
	a.send(b, 3, 10)
	sent := h.nic.Count.Sent
	w.run(time.Second)
	if a.state != verbs.QPStateErr || len(a.free) != a.Caps.MaxSendWR || h.nic.Count.Sends != 4 || h.nic.Count.Sent != sent {
		t.Errorf("state %v, %d of %d entries free, %d requests ended, want 4, %d packets sent", a.state, len(a.free), a.Caps.MaxSendWR, h.nic.Count.Sends, h.nic.Count.Sent-sent)
	}
}

// A response or error message may arrive after the flow of its request has failed. The QP drops
// it. (Found by fuzz.FuzzDatagramPeer: the NIC panicked.)
func TestRDResponsesToFailedFlowAreDropped(t *testing.T) {
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
			t.Errorf("%v: not accepted", op)
		}
		if n.Count.DropSegment != uint64(i+1) {
			t.Errorf("%v: %d segments dropped, want %d", op, n.Count.DropSegment, i+1)
		}
	}
}

// Requests that wait for the end of a failed flow are sent before later ones. (Found by
// fuzz.FuzzDatagramPeer: a later one was sent first, and again, and the next never completed.)
func TestRDWaitingRequestsKeepOrder(t *testing.T) {
	w, a, b := pair(t, true)
	for i := range 4 {
		b.recv(uint64(i), 1000*i, 500)
	}
	a.send(b, 1, 10)
	w.run(time.Millisecond)
	n := a.h.nic
	p := n.peerOf(n.rd.PeersOf(a.QPN)[0])
	w.intercept = func(*link.Datagram, *wire.Packet) bool { return true } // drop all
	a.send(b, 2, 20)
	w.run(50 * time.Microsecond)
	p.requester.stream.Fail(ddp.TermRDMAPLocal, noTerminate)
	a.send(b, 3, 30) // waits for the packet in flight
	w.run(50 * time.Microsecond)
	if p.waiting == nil {
		t.Fatal("the third request does not wait")
	}
	p.requester.stream.Drop() // drop it without notice
	w.intercept = nil
	a.send(b, 4, 40)
	w.run(time.Second)
	want := []uint32{10, 30, 40} // the second failed with its flow
	for i, wc := range b.expectCompletions(len(want)) {
		if wc.Status != verbs.WCSuccess || wc.ByteLen != verbs.GRHLen+want[i] {
			t.Errorf("receive %d: %v, %d bytes, want %d", i, wc.Status, wc.ByteLen, verbs.GRHLen+want[i])
		}
	}
	var ids []uint64
	for _, wc := range a.expectCompletions(4) {
		ids = append(ids, wc.WRID)
	}
	if !slices.Equal(ids, []uint64{1, 2, 3, 4}) {
		t.Errorf("completions of requests %d", ids)
	}
}
