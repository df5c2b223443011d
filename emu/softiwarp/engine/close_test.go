package engine

import (
	"errors"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/iwarp"
	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

func TestDisconnect(t *testing.T) {
	a, b := newHost(t), newHost(t)
	p := connect(t, a, b)
	b.recv(1)
	b.recv(2)
	p.ca.Disconnect(p.now)
	a.wantState(verbs.QPStateSQD)
	p.run()
	a.wantState(verbs.QPStateErr)
	b.wantState(verbs.QPStateErr)
	if p.ca.State() != Closed || p.cb.State() != Closed || p.ca.Err() != nil || p.cb.Err() != nil {
		t.Errorf("%v %v, %v %v", p.ca.State(), p.ca.Err(), p.cb.State(), p.cb.Err())
	}
	b.wantRecvs("1 WR_FLUSH_ERR", "2 WR_FLUSH_ERR")
	a.wantEvents()
	b.wantEvents()
	if a.qp.End().Cause != 0 {
		t.Errorf("ended %+v", a.qp.End())
	}
	if a.nic.Deadline() != mono.Never || b.nic.Deadline() != mono.Never {
		t.Error("a timer is still armed")
	}
	// Connect the same queue pairs again.
	for _, h := range []*host{a, b} {
		must.Do(t, h.qp.Modify(p.now, verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPAttrState))
	}
	p = connect(t, a, b)
	b.recv(3)
	a.send(verbs.SendWR{WRID: 9, Opcode: verbs.OpSend})
	p.run()
	a.wantSends("9")
	b.wantRecvs("3:0")
}

func TestDisconnectFromBothSidesAtOnce(t *testing.T) {
	a, b := newHost(t), newHost(t)
	p := connect(t, a, b)
	p.ca.Disconnect(p.now)
	p.cb.Disconnect(p.now)
	p.run()
	if p.ca.State() != Closed || p.cb.State() != Closed || p.ca.Err() != nil || p.cb.Err() != nil {
		t.Errorf("%v %v, %v %v", p.ca.State(), p.ca.Err(), p.cb.State(), p.cb.Err())
	}
}

func TestCloseTimeoutResetsStream(t *testing.T) {
	h := newHost(t)
	k := asInitiator(t, h, ConnParam{IRD: 4, ORD: 4}, "5002000400040004")
	k.c.Disconnect(k.now)
	k.write(0)
	if !k.fin[0] || k.c.State() != Closing {
		t.Fatalf("%v", k.c.State())
	}
	k.later(5*time.Second, h.nic)
	k.write(0)
	if !k.reset[0] || !errors.Is(k.c.Err(), ErrCloseTimeout) || h.nic.Count.CloseTimeouts != 1 {
		t.Errorf("%v %v", k.c.State(), k.c.Err())
	}
	h.wantState(verbs.QPStateErr)
}

func TestStreamIsReset(t *testing.T) {
	a, b := newHost(t), newHost(t)
	p := connect(t, a, b)
	r, _ := a.region(8, allAccess)
	a.send(verbs.SendWR{WRID: 1, Opcode: verbs.OpRDMARead, SGL: []verbs.SGE{sge(r, 0, 8)}})
	a.send(verbs.SendWR{WRID: 2, Opcode: verbs.OpSend})
	a.recv(3)
	p.write(0)
	p.ca.Failed(p.now, link.ErrReset)
	a.wantSends("1 WR_FLUSH_ERR", "2 WR_FLUSH_ERR")
	a.wantRecvs("3 WR_FLUSH_ERR")
	a.wantState(verbs.QPStateErr)
	a.wantEvents(verbs.EventQPFatal)
	if p.ca.State() != Closed || !errors.Is(p.ca.Err(), link.ErrReset) {
		t.Errorf("%v %v", p.ca.State(), p.ca.Err())
	}
}

func TestReturnedMemoryIsNotSent(t *testing.T) {
	// A Write is partly sent when the connection fails, and its memory belongs to the program
	// again. The rest of the FPDU, which must precede a Terminate, has the original octets.
	a, b := newHost(t), newHost(t)
	p := connect(t, a, b)
	src, mem := a.region(1<<17, allAccess)
	dst, got := b.region(1<<17, allAccess)
	for i := range mem {
		mem[i] = 0x11
	}
	a.send(verbs.SendWR{WRID: 1, Opcode: verbs.OpRDMAWrite, SGL: []verbs.SGE{sge(src, 0, 1<<17)}, Remote: verbs.Remote{Addr: dst.Addr, RKey: verbs.RKey(dst.Key)}})
	p.maxWrite = 1000
	p.write(0)
	must.Do(t, a.qp.Modify(p.now, verbs.QPAttr{State: verbs.QPStateSQE}, verbs.QPAttrState))
	a.wantSends("1 WR_FLUSH_ERR")
	for i := range mem {
		mem[i] = 0x22
	}
	p.run()
	for i, v := range got {
		if v == 0x22 {
			t.Fatalf("octet %d was sent after its memory was returned", i)
		}
	}
	if term, received := b.qp.stream.Ended(); !received || term.Error != wire.TermRDMAPLocal {
		t.Errorf("%+v %v", term, received)
	}
	a.wantState(verbs.QPStateErr)
	b.wantState(verbs.QPStateErr)
}

func TestCloseWithinMessageFailsConnection(t *testing.T) {
	for name, g := range map[string]wire.Segment{"send": segment(wire.OpSend, 1, []byte("half")), "write": {}} {
		h := newHost(t)
		k := asResponder(t, h, crcEnhanced, ConnParam{IRD: 4, ORD: 4})
		r, _ := h.region(64, allAccess)
		h.recv(1, sge(r, 0, 64))
		if name == "write" {
			g = write(r.Key, r.Addr, []byte("half"))
		}
		g.Control.Last = false
		k.sendSegment(g)
		k.c.InputEOF(k.now)
		if got := k.receivedOne(); got.Terminate.Error != wire.TermMPAClosed {
			t.Errorf("%s: %v", name, got.Terminate.Error)
		}
		h.wantRecvs("1 WR_FLUSH_ERR")
		h.wantEvents(verbs.EventQPFatal)
		if k.c.State() != Closed || k.c.Err() == nil {
			t.Errorf("%s: %v %v", name, k.c.State(), k.c.Err())
		}
	}
}

func TestResponderBeforeFirstFPDUSendsNoTerminate(t *testing.T) {
	for name, do := range map[string]func(*tester){
		"failed": func(k *tester) {
			must.Do(t, k.qp.Modify(0, verbs.QPAttr{State: verbs.QPStateSQE}, verbs.QPAttrState))
		},
		"closed": func(k *tester) { k.c.InputEOF(0) },
	} {
		h := newHost(t)
		k := asResponder(t, h, crcEnhanced, ConnParam{IRD: 4, ORD: 4})
		h.send(verbs.SendWR{WRID: 1, Opcode: verbs.OpSend})
		do(k)
		if segs := k.received(); len(segs) != 0 || !k.fin[0] {
			t.Errorf("%s: sent %+v, closed %v", name, segs, k.fin[0])
		}
		h.wantSends("1 WR_FLUSH_ERR")
	}
}

func TestReadResponseIsSnapshotOfMemory(t *testing.T) {
	// TCP accepts a read response in parts while the memory changes and is deregistered. The octets
	// sent match the CRC, and have none of the later contents.
	h := newHost(t)
	k := asResponder(t, h, crcEnhanced, ConnParam{IRD: 4, ORD: 4})
	r, mem := h.region(20000, allAccess)
	for i := range mem {
		mem[i] = 0x11
	}
	g := segment(wire.OpReadRequest, 1, nil)
	g.ReadRequest = wire.ReadRequest{Size: 20000, SrcSTag: wire.STag(r.Key), SrcTO: r.Addr}
	k.sendSegment(g)
	k.maxWrite = 100
	segs := k.received()
	for i := range mem {
		mem[i] = 0x22
	}
	must.Do(t, h.nic.DeregMR(r))
	k.maxWrite = 0
	segs = append(segs, k.received()...) // checks the CRCs
	for _, s := range segs {
		for _, v := range s.Payload {
			if v != 0x11 {
				t.Fatalf("%v carries %#x", s.Control.Opcode, v)
			}
		}
	}
	if len(segs) == 0 {
		t.Error("no answer")
	}
}

func TestUnsignaledRequestsCompleteOnlyInError(t *testing.T) {
	h := newHost(t, func(_ *Config, q *iwarp.QueueConfig) { q.SignalAll = false })
	k := asInitiator(t, h, ConnParam{IRD: 4, ORD: 4}, crcEnhanced)
	h.send(verbs.SendWR{WRID: 1, Opcode: verbs.OpSend})
	h.send(verbs.SendWR{WRID: 2, Opcode: verbs.OpSend, Flags: verbs.SendSignaled})
	k.received()
	h.wantSends("2")
	h.send(verbs.SendWR{WRID: 3, Opcode: verbs.OpSend, SGL: []verbs.SGE{{Length: 1}}})
	k.received()
	h.wantSends("3 LOC_PROT_ERR")
}

func TestFailedQPStaysFailedWhenPeerCloses(t *testing.T) {
	h := newHost(t)
	k := asResponder(t, h, crcEnhanced, ConnParam{IRD: 4, ORD: 4})
	k.sendSegment(write(1, 2, []byte{3}))
	h.wantState(verbs.QPStateSQE)
	k.c.InputEOF(k.now) // while the Terminate is not yet sent
	h.wantState(verbs.QPStateSQE)
	if g := k.receivedOne(); g.Terminate.Error != wire.TermTaggedSTag {
		t.Errorf("%v", g.Terminate.Error)
	}
	h.wantState(verbs.QPStateErr)
}

// The close timeout begins when the connection starts to close, however long it was idle before.
func TestCloseTimeoutOfIdleConnection(t *testing.T) {
	const idle = time.Minute
	for name, end := range map[string]func(*tester){
		"Disconnect":         func(k *tester) { k.c.Disconnect(k.now) },
		"an invalid segment": func(k *tester) { k.sendSegment(segment(wire.OpSend, 9, nil)) },
	} {
		h := newHost(t)
		k := asInitiator(t, h, ConnParam{IRD: 4, ORD: 4}, crcEnhanced)
		k.now = k.now.Add(idle)
		end(k)
		if want := k.now.Add(h.nic.cfg.CloseTimeout); h.nic.Deadline() != want {
			t.Errorf("%s: the deadline is %v, want %v", name, h.nic.Deadline(), want)
		}
	}
}

func TestFullCQRaisesQPFatal(t *testing.T) {
	a, b := newHost(t), newHost(t)
	p := connect(t, a, b)
	for i := range uint64(cqDepth + 1) {
		b.recv(i)
		a.send(verbs.SendWR{WRID: i, Opcode: verbs.OpSend})
		p.run()
		poll(b.RecvCQ)
	}
	a.wantEvents(verbs.EventCQErr, verbs.EventQPFatal)
}
