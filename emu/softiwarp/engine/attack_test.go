package engine

import (
	"errors"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// A stream that ends within a message of any kind is an error.
func TestEOFWithinMessageTerminates(t *testing.T) {
	half := func(g wire.Segment) wire.Segment {
		g.Control.Last = false
		return g
	}
	for name, what := range map[string]func(k *tester, r *nic.Region) wire.Segment{
		"a send":  func(*tester, *nic.Region) wire.Segment { return half(segment(wire.OpSend, 1, []byte("ha"))) },
		"a write": func(_ *tester, r *nic.Region) wire.Segment { return half(write(r.Key, r.Addr, []byte("ha"))) },
		"a read request": func(*tester, *nic.Region) wire.Segment {
			return half(segment(wire.OpReadRequest, 1, nil))
		},
		"a read response": func(k *tester, r *nic.Region) wire.Segment {
			k.send(verbs.SendWR{WRID: 1, Opcode: verbs.OpRDMARead, SGL: []verbs.SGE{sge(r, 0, 8)}})
			k.received()
			g := write(r.Key, r.Addr, []byte("ha"))
			g.Control.Opcode = wire.OpReadResponse
			return half(g)
		},
	} {
		h := newHost(t)
		k := asInitiator(t, h, ConnParam{IRD: 4, ORD: 4}, crcEnhanced)
		r, _ := h.region(8, allAccess)
		h.recv(2, sge(r, 0, 8))
		k.sendSegment(what(k, r))
		if !h.qp.stream.Receiving() {
			t.Errorf("%s: no message is incomplete", name)
		}
		k.c.InputEOF(0)
		if term := k.receivedOne().Terminate; term.Error != wire.TermMPAClosed {
			t.Errorf("%s: Terminate %v", name, term.Error)
		}
		k.take(0)
		if !errors.Is(k.c.Err(), errTruncated) || k.c.State() != Closed {
			t.Errorf("%s: %v, %v", name, k.c.State(), k.c.Err())
		}
		h.wantRecvs("2 WR_FLUSH_ERR")
		if name == "a read response" {
			h.wantSends("1 WR_FLUSH_ERR")
		}
	}
}

// A closed connection keeps no buffers, even if the program keeps the Conn.
func TestClosedConnectionReleasesBuffers(t *testing.T) {
	for name, end := range map[string]func(*tester){
		"in order":  func(k *tester) { k.c.Disconnect(0); k.take(0); k.c.InputEOF(0) },
		"reset":     func(k *tester) { k.c.Failed(0, link.ErrReset) },
		"abort":     func(k *tester) { k.c.Abort() },
		"destroyed": func(k *tester) { _ = k.nic.DestroyQP(k.qp) },
		"error":     func(k *tester) { k.sendSegment(segment(wire.OpSend, 9, nil)); k.take(0); k.c.InputEOF(0) },
		"timeout": func(k *tester) {
			k.c.Disconnect(0)
			k.take(0)
			k.later(5*time.Second, k.nic)
		},
	} {
		h := newHost(t)
		k := asInitiator(t, h, ConnParam{IRD: 4, ORD: 4}, crcEnhanced)
		r, _ := h.region(8000, allAccess)
		k.maxWrite = 100
		h.send(verbs.SendWR{WRID: 1, Opcode: verbs.OpRDMAWrite, SGL: []verbs.SGE{sge(r, 0, 8000)}})
		k.write(0) // a part of the Write
		k.maxWrite = 0
		end(k)
		k.take(0)
		if c := k.c; c.State() != Closed || c.mpa != nil || c.copiedOutput != nil {
			t.Errorf("%s: %v, with MPA %v and %d octets", name, c.State(), c.mpa != nil, len(c.copiedOutput))
		}
		// Later calls of the driver have no effect.
		k.c.Input(0, []byte{1})
		k.c.Sent(0, 1, 0)
		k.c.InputEOF(0)
		k.c.Failed(0, link.ErrReset)
		if bufs, _ := k.c.Output(make([][]byte, 0, 4)); len(bufs) != 0 {
			t.Errorf("%s: it still has %d vectors", name, len(bufs))
		}
	}
}

// A queue pair that the program moved to ERR stays there, and the peer gets a Terminate.
func TestQPFailedDuringConnectStaysInErr(t *testing.T) {
	h := newHost(t)
	c := must.Get(h.nic.Connect(h.qp, ConnParam{IRD: 4, ORD: 4}))(t)
	p := newPipe(t, c, nil)
	p.take(0)
	must.Do(t, h.qp.Modify(0, verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState))
	p.give(0, unhex(t, replyFrame+crcEnhanced))
	h.wantState(verbs.QPStateErr)
	if len(p.take(0)) == 0 {
		t.Error("the peer got no Terminate")
	}
	h.wantState(verbs.QPStateErr)
}

// A receive that completes in error has the opcode of a receive.
func TestFailedReceivesHaveReceiveOpcode(t *testing.T) {
	h := newHost(t)
	k := asResponder(t, h, crcEnhanced, ConnParam{IRD: 4, ORD: 4})
	h.recv(1)
	h.recv(2)
	k.sendSegment(segment(wire.OpSend, 1, []byte("too long")))
	var wc [3]verbs.WC
	n, err := h.RecvCQ.Poll(wc[:])
	if n != 2 || err != nil {
		t.Fatalf("%d completions, %v", n, err)
	}
	for i, want := range []verbs.WCStatus{verbs.WCLocLenErr, verbs.WCWRFlushErr} {
		if wc[i].Status != want || wc[i].Opcode != verbs.WCOpRecv || wc[i].WRID != uint64(i+1) {
			t.Errorf("%+v", wc[i])
		}
	}
}
