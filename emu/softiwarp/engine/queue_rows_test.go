package engine

import (
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/iwarp"
	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

var queueRows = map[string]func(*testing.T){
	"rfc5040/5.3/6": func(t *testing.T) {
		h := newHost(t)
		k := asResponder(t, h, crcEnhanced, ConnParam{IRD: 4, ORD: 4})
		for i := range uint64(3) {
			h.recv(i)
		}
		h.RecvCQ.ReqNotify(true)
		k.sendSegment(segment(wire.OpSend, 1, nil))
		if h.nic.CompletionEvents() != 0 {
			t.Error("a plain Send raises an event")
		}
		k.sendSegment(segment(wire.OpSendSE, 2, nil))
		if cq, ok := h.nic.NextCompletionEvent(); !ok || cq != h.RecvCQ {
			t.Error("a Send with solicited event raises none")
		}
	},
	"rfc5040/8.1.1/1": func(t *testing.T) {
		h := newHost(t)
		var keys []uint32
		for range 100 {
			r, _ := h.region(1, allAccess)
			keys = append(keys, r.Key)
		}
		for lag := 1; lag <= 10; lag++ {
			steps := map[uint32]int{}
			for i := lag; i < len(keys); i++ {
				steps[keys[i]-keys[i-lag]]++
			}
			for step, n := range steps {
				if n > 5 {
					t.Errorf("%d of 100 keys are %#x after the one %d before", n, step, lag)
				}
			}
		}
	},
	"rfc5040/8.1.1/2 rfc5042/6.4.6/1": func(t *testing.T) {
		// Two connections of one NIC; the completion queue of one overflows.
		a := newHost(t)
		small := a.cq(2)
		b, c := newHost(t), newHost(t)
		over := &host{t: t, nic: a.nic, pd: a.pd, SendCQ: a.SendCQ, RecvCQ: small}
		over.qp = over.newQP(iwarp.QueueConfig{PD: a.pd, SendCQ: a.SendCQ, RecvCQ: small, Caps: verbs.QPCaps{MaxRecvWR: 8}})
		p, q := connect(t, b, a), connect(t, c, over)
		for i := range uint64(4) {
			over.recv(i)
			a.recv(i)
			c.send(verbs.SendWR{WRID: i, Opcode: verbs.OpSend})
			b.send(verbs.SendWR{WRID: i, Opcode: verbs.OpSend})
		}
		q.run()
		p.run()
		over.wantState(verbs.QPStateErr)
		if term, received := c.qp.stream.Ended(); !received || term.Error != wire.TermRDMAPLocal {
			t.Errorf("the peer got %+v", term)
		}
		a.wantState(verbs.QPStateRTS)
		a.wantRecvs("0:0", "1:0", "2:0", "3:0")
		if a.nic.CQOverruns != 1 {
			t.Errorf("%d overruns", a.nic.CQOverruns)
		}
	},
	"rfc5042/6.4.3.1/1": func(t *testing.T) {
		h := newHost(t)
		srq := must.Get(h.nic.CreateSRQ(nic.SRQConfig{PD: h.pd, MaxWR: 8, MaxSGE: 1, Limit: 3}))(t)
		h.qp = h.newQP(iwarp.QueueConfig{PD: h.pd, SendCQ: h.SendCQ, RecvCQ: h.RecvCQ, SRQ: srq})
		k := asResponder(t, h, crcEnhanced, ConnParam{IRD: 4, ORD: 4})
		if err := h.qp.PostRecv(&verbs.RecvWR{}); err == nil {
			t.Error("a receive of its own")
		}
		for i := range uint64(4) {
			must.Do(t, srq.PostRecv(&verbs.RecvWR{WRID: i}))
		}
		k.sendSegment(segment(wire.OpSend, 1, nil))
		h.wantEvents()
		k.sendSegment(segment(wire.OpSend, 2, nil))
		h.wantEvents(verbs.EventSRQLimitReached)
		h.wantRecvs("0:0", "1:0")
		// Receives in a shared queue remain when the queue pair fails.
		k.sendSegment(write(1, 2, []byte{3}))
		h.wantRecvs()
		h.wantEvents(verbs.EventQPAccessErr, verbs.EventQPLastWQEReached)
		if srq.Count() != 2 {
			t.Errorf("%d receives remain", srq.Count())
		}
	},
	"rfc5042/6.4.3.3/1": func(t *testing.T) {
		a := newHost(t)
		other := &host{t: t, nic: a.nic, pd: a.pd, SendCQ: a.SendCQ, RecvCQ: a.RecvCQ}
		other.qp = other.newQP(iwarp.QueueConfig{PD: a.pd, SendCQ: a.SendCQ, RecvCQ: a.RecvCQ})
		k, l := asResponder(t, a, crcEnhanced, ConnParam{IRD: 4, ORD: 4}), asResponder(t, other, crcEnhanced, ConnParam{IRD: 4, ORD: 4})
		for i := range 4 { // the first queue pair's limit, all unanswered
			k.sendSegment(segment(wire.OpReadRequest, wire.MSN(i+1), nil))
		}
		for i := range 4 {
			l.sendSegment(segment(wire.OpReadRequest, wire.MSN(i+1), nil))
		}
		if got := len(l.received()); got != 4 {
			t.Errorf("%d of 4 reads answered", got)
		}
	},
}

func TestSendWithoutReceiveTerminatesConnection(t *testing.T) {
	a, b := newHost(t), newHost(t)
	p := connect(t, a, b)
	a.send(verbs.SendWR{WRID: 1, Opcode: verbs.OpSend})
	p.run()
	a.wantSends("1") // TCP accepted it
	b.wantEvents(verbs.EventQPReqErr)
	a.wantEvents(verbs.EventQPFatal)
	for _, h := range []*host{a, b} {
		term, received := h.qp.stream.Ended()
		if term == nil || received != (h == a) || term.Error != wire.TermUntaggedNoBuffer || !term.HasDDP || term.DDP.Untagged.MSN != 1 {
			t.Errorf("%+v %v", term, received)
		}
		h.wantState(verbs.QPStateErr)
	}
	must.Do(t, a.qp.PostSend(&verbs.SendWR{WRID: 2, Opcode: verbs.OpSend}, Refs{}))
	var wc [1]verbs.WC
	if n, _ := a.SendCQ.Poll(wc[:]); n != 1 || wc[0].Status != verbs.WCWRFlushErr {
		t.Fatalf("%+v", wc)
	}
	if want := VendorError(wire.TermUntaggedNoBuffer, true); wc[0].VendorErr != want {
		t.Errorf("VendorErr %#x, want %#x", wc[0].VendorErr, want)
	}
	if a.nic.layer.Count.TerminatesReceived.Of(wire.TermUntaggedNoBuffer) != 1 || b.nic.layer.Count.TerminatesSent.Of(wire.TermUntaggedNoBuffer) != 1 {
		t.Error("not counted")
	}
	p.later(time.Hour, a.nic, b.nic)
}
