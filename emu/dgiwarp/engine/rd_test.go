package engine

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	ddp "github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

func TestRDCompletesWhenAcknowledged(t *testing.T) {
	w, a, b := pair(t, true)
	b.recv(1, 0, 1000)
	dropAcks := true
	w.intercept = func(d *link.Datagram, k *wire.Packet) bool {
		return dropAcks && d.Dst.Addr() == a.h.addr && k.Kind == wire.KindRD
	}
	want := bytes.Clone(a.fill(0, 500, 1))
	a.send(b, 2, 500)
	w.run(50 * time.Millisecond)
	a.expectCompletions(0)
	wc := b.expectSuccess(1)[0]
	if wc.ByteLen != 540 || wc.SrcQP != verbs.QPN(a.QPN) || !bytes.Equal(b.bytes(recvAt+verbs.GRHLen, 500), want) {
		t.Errorf("%+v", wc)
	}
	reply, err := verbs.InitAHFromWC(1, 0, &wc, b.bytes(recvAt, verbs.GRHLen))
	if err != nil || reply.GRH.DGID.Addr() != a.h.addr || SourcePort(b.bytes(recvAt, verbs.GRHLen)) != wire.Port {
		t.Errorf("%v: from %v", err, reply.GRH.DGID)
	}
	dropAcks = false
	w.run(time.Second)
	a.expectSuccess(1)
	b.expectCompletions(0)
}

// All operations deliver correct data, with and without loss.
func TestRDOperations(t *testing.T) {
	for _, loss := range []int{0, 20} {
		w, a, b := pair(t, true)
		w.lossPercent, w.latePercent = loss, loss
		remote := verbs.Remote{Addr: b.h.mr.Addr + b.base, RKey: verbs.RKey(b.h.mr.Key)}
		ops := []struct {
			name  string
			wr    verbs.SendWR
			recv  bool
			check func(wc verbs.WC) bool
		}{
			{"send", verbs.SendWR{Opcode: verbs.OpSend, SGL: a.sge(0, 20_000)}, true, func(wc verbs.WC) bool {
				return wc.ByteLen == 20_040 && bytes.Equal(a.bytes(0, 20_000), b.bytes(recvAt+verbs.GRHLen, 20_000))
			}},
			{"empty send", verbs.SendWR{Opcode: verbs.OpSend}, true, func(wc verbs.WC) bool { return wc.ByteLen == 40 }},
			{"immediate", verbs.SendWR{Opcode: verbs.OpSendImm, Imm: 7}, true, func(wc verbs.WC) bool { return wc.Imm == 7 && wc.Flags&verbs.WCWithImm != 0 }},
			{"write", verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: a.sge(0, 30_000), Remote: remote}, false, func(verbs.WC) bool {
				return bytes.Equal(a.bytes(0, 30_000), b.bytes(0, 30_000))
			}},
			{"write with immediate", verbs.SendWR{Opcode: verbs.OpRDMAWriteImm, SGL: a.sge(0, 5000), Imm: 9, Remote: remote}, true, func(wc verbs.WC) bool {
				return wc.Imm == 9 && bytes.Equal(a.bytes(0, 5000), b.bytes(0, 5000))
			}},
			{"read", verbs.SendWR{Opcode: verbs.OpRDMARead, SGL: a.sge(recvAt, 40_000), Remote: remote}, false, func(verbs.WC) bool {
				return bytes.Equal(a.bytes(recvAt, 40_000), b.bytes(0, 40_000))
			}},
		}
		for round := range 3 {
			for _, op := range ops {
				a.fill(0, 50_000, round+len(op.name))
				if op.recv {
					b.recv(4, 0, 60_000)
				}
				a.post(b, op.wr)
				w.run(3 * time.Second)
				a.expectSuccess(1)
				var wc verbs.WC
				if op.recv {
					wc = b.expectSuccess(1)[0]
				}
				b.expectCompletions(0)
				if !op.check(wc) {
					t.Fatalf("loss of %d %%: %s: %+v, or the data differs", loss, op.name, wc)
				}
			}
			binary.LittleEndian.PutUint64(b.bytes(0, 8), 40)
			a.post(b, verbs.SendWR{Opcode: verbs.OpAtomicFetchAdd, SGL: a.sge(64, 8), Remote: remote, Atomic: verbs.Atomic{CompareAdd: 2}})
			w.run(3 * time.Second)
			a.expectSuccess(1)
			if old, now := binary.LittleEndian.Uint64(a.bytes(64, 8)), binary.LittleEndian.Uint64(b.bytes(0, 8)); old != 40 || now != 42 {
				t.Fatalf("fetch and add: %d and %d", old, now)
			}
		}
		// READs beyond the limit of outstanding ones wait.
		for i := range 40 {
			a.post(b, verbs.SendWR{WRID: uint64(i), Opcode: verbs.OpRDMARead, SGL: a.sge(recvAt, 100), Remote: remote})
		}
		w.run(5 * time.Second)
		for i, wc := range a.expectSuccess(40) {
			if wc.WRID != uint64(i) {
				t.Fatalf("read %d completed at position %d", wc.WRID, i)
			}
		}
	}
}

// One QP receives messages of several segments from eight sources at once.
func TestRDReceivesFromManySources(t *testing.T) {
	w := newNetwork(t)
	w.lossPercent, w.latePercent = 5, 20
	b := w.host().newQP(true)
	var sources []*testQP
	for range 8 {
		sources = append(sources, w.host().newQP(true))
	}
	for i := range 40 {
		b.recv(uint64(i), 3000*i, 3000)
	}
	for i, s := range sources {
		for k := range 5 {
			s.fill(3000*k, 2900, 10*i+k)
			s.post(b, verbs.SendWR{Opcode: verbs.OpSend, SGL: s.sge(3000*k, 2900)})
		}
	}
	w.run(5 * time.Second)
	count := map[string]int{}
	for _, wc := range b.expectSuccess(40) {
		area := b.bytes(recvAt+3000*int(wc.WRID), int(wc.ByteLen))
		reply := must.Get(verbs.InitAHFromWC(1, 0, &wc, area))(t)
		from := reply.GRH.DGID.String()
		for i, s := range sources {
			if s.h.addr.String() == from {
				if k := count[from]; !bytes.Equal(area[verbs.GRHLen:], s.bytes(3000*k, 2900)) {
					t.Errorf("message %d of source %d differs, or is out of order", k, i)
				}
				count[from]++
			}
		}
	}
	for _, s := range sources {
		s.expectSuccess(5)
	}
	if len(count) != 8 {
		t.Errorf("messages of %d sources, want 8", len(count))
	}
}

// A Send without a receive waits. It does not delay a Write of another peer.
func TestRDSendWaitsForReceive(t *testing.T) {
	w, a, b := pair(t, true)
	c := w.host().newQP(true)
	for i := range 3 {
		a.send(b, uint64(i), 100)
	}
	c.post(b, verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: c.sge(0, 100), Remote: verbs.Remote{Addr: b.h.mr.Addr, RKey: verbs.RKey(b.h.mr.Key)}})
	w.run(15 * time.Second)
	a.expectCompletions(0)
	b.expectCompletions(0)
	c.expectSuccess(1)
	if queued := b.h.nic.awaitingReceives.Len(); queued != 1 {
		t.Errorf("the QP is queued %d times for receives, want once", queued)
	}
	for i := range 3 {
		b.recv(uint64(i), 200*i, 200)
		w.run(time.Millisecond)
		if wc := b.expectSuccess(1)[0]; wc.WRID != uint64(i) {
			t.Errorf("%+v", wc)
		}
		a.expectSuccess(1)
	}
}

// Each posted receive resumes one of the waiting peers, in order.
func TestRDReceivesResumePeersInOrder(t *testing.T) {
	w := newNetwork(t)
	b := w.host().newQP(true)
	var waiting []*testQP
	for range 3 {
		e := w.host().newQP(true)
		e.send(b, 1, 10)
		w.run(time.Millisecond)
		waiting = append(waiting, e)
	}
	w.run(time.Second) // they now retry every 128 ms
	for i, e := range waiting {
		b.recv(uint64(i), 0, 100)
		w.run(200 * time.Microsecond)
		b.expectSuccess(1)
		e.expectSuccess(1)
		for _, other := range waiting[i+1:] {
			other.expectCompletions(0)
		}
	}
}

func TestRDUnreachablePeerDoesNotDelayOthers(t *testing.T) {
	w, a, b := pair(t, true)
	unreachable := w.host().newQP(true)
	w.intercept = func(d *link.Datagram, _ *wire.Packet) bool { return d.Dst.Addr() == unreachable.h.addr }
	b.recv(1, 0, 100)
	a.send(unreachable, 1, 10)
	a.send(b, 2, 10)
	w.run(time.Millisecond)
	if wc := a.expectSuccess(1)[0]; wc.WRID != 2 {
		t.Errorf("%+v", wc)
	}
}

// After a long idle time both sides start new flows, with new MSNs, for READs and responses too.
func TestRDFlowsRestartAfterIdleTime(t *testing.T) {
	w, a, b := pair(t, true)
	msns := map[*testQP]map[ddp.MSN]bool{a: {}, b: {}}
	w.intercept = func(d *link.Datagram, k *wire.Packet) bool {
		var h ddp.Header
		if _, err := h.Parse(k.ULPDU); err == nil && h.Control.Opcode == ddp.OpSend {
			from := a
			if d.Src.Addr() == b.h.addr {
				from = b
			}
			msns[from][h.Untagged.MSN] = true
		}
		return false
	}
	remote := verbs.Remote{Addr: b.h.mr.Addr + b.base, RKey: verbs.RKey(b.h.mr.Key)}
	for _, pause := range []time.Duration{0, 5 * time.Second, 12 * time.Second, 31 * time.Second, 70 * time.Second} {
		w.run(pause)
		for _, side := range [][2]*testQP{{a, b}, {b, a}} {
			x, y := side[0], side[1]
			y.recv(1, 0, 200)
			x.send(y, 1, 100)
			w.run(time.Millisecond)
			x.expectSuccess(1)
			y.expectSuccess(1)
		}
		a.post(b, verbs.SendWR{Opcode: verbs.OpRDMARead, SGL: a.sge(recvAt, 100), Remote: remote})
		w.run(time.Millisecond)
		a.expectSuccess(1)
	}
	// After 12 s the first sender starts a new flow; the other has just received, and keeps its
	// flow. After 31 s both start new flows.
	if len(msns[a]) != 2 || len(msns[b]) != 3 {
		t.Errorf("MSNs %v and %v, want 2 and 3 different ones", msns[a], msns[b])
	}
}

// If the segment pool is small, peers take turns.
func TestRDPeersShareSegmentPool(t *testing.T) {
	w := newNetwork(t)
	a := w.host(func(c *Config) { c.RD.Segments = 8 }).newQP(true)
	var others []*testQP
	for range 4 {
		e := w.host().newQP(true)
		for i := range 4 {
			e.recv(uint64(i), 20_000*i, 20_000)
		}
		others = append(others, e)
	}
	for range 4 {
		for _, e := range others {
			a.send(e, 1, 15_000)
		}
	}
	w.run(time.Second)
	a.expectSuccess(16)
	for _, e := range others {
		e.expectSuccess(4)
	}
}

// A posted receive resumes one waiting peer, not all.
func TestRDReceiveResumesOnePeer(t *testing.T) {
	w, a, b := pair(t, true)
	senders := []*testQP{a, w.host().newQP(true), w.host().newQP(true)}
	for _, s := range senders {
		s.send(b, 1, 10)
	}
	w.run(200 * time.Microsecond)
	resumed := 0
	w.intercept = func(d *link.Datagram, k *wire.Packet) bool {
		if d.Src.Addr() == b.h.addr && k.Flags.Has(wire.FlagAck) && k.Ack.Window > 0 {
			resumed++
		}
		return false
	}
	b.recv(1, 0, 100)
	w.output()
	if resumed != 1 {
		t.Errorf("one receive resumed %d of %d peers", resumed, len(senders))
	}
}

// Local requests of an RD QP go to no peer.
func TestRDLocalRequestsNeedNoPeer(t *testing.T) {
	w, a, b := pair(t, true)
	a.post(b, verbs.SendWR{Opcode: verbs.OpLocalInv, InvalidateRKey: 99})
	w.run(time.Millisecond)
	if wc := a.expectCompletions(1)[0]; wc.Status == verbs.WCSuccess || a.h.nic.rd.Peers() != 0 || w.sent != 0 {
		t.Errorf("%v, %d peers, %d packets", wc.Status, a.h.nic.rd.Peers(), w.sent)
	}
}
