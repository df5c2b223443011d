package engine

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// qp/3: A send posted before RTS is rejected and is not executed later.
func TestSendPostedBeforeRTSIsRejected(t *testing.T) {
	for i, state := range []verbs.QPState{verbs.QPStateReset, verbs.QPStateInit, verbs.QPStateRTR} {
		p, a := unconnected(t, flavours[i], setup{}, state)
		expectUnchanged(t, p.q, func() {
			must.Fail(t, fmt.Sprintf("in %v", state), p.tryPost(1), verbs.ErrInvalid)
		})
		p.moveUpTo(a, verbs.QPStateRTS)
		p.silence(time.Second)
		p.wcs()
		p.post(2, verbs.OpSend, 4)
		p.expect("SEND_ONLY 0 4B ackreq")
		p.ack(0)
		p.wcs("2 SUCCESS SEND")
	}
}

// qp/4: Receives are rejected in RESET and accepted from INIT on.
func TestReceivesAreAcceptedFromINIT(t *testing.T) {
	p, a := unconnected(t, flavours[0], setup{}, verbs.QPStateReset)
	expectUnchanged(t, p.q, func() {
		must.Fail(t, "in RESET", p.q.PostRecv(&verbs.RecvWR{WRID: 1}), verbs.ErrInvalid)
	})
	for i, state := range []verbs.QPState{verbs.QPStateInit, verbs.QPStateRTR, verbs.QPStateRTS, verbs.QPStateSQD} {
		if state == verbs.QPStateSQD {
			p.enter(state)
		} else {
			p.moveUpTo(a, state)
		}
		p.recv(uint64(i), 8)
	}
	for k := range 4 {
		p.send(wire.OpSendOnly, k, data(8), ackReq)
		p.expect(fmt.Sprintf("ACK %d msn %d", k, k+1))
		p.wcs(fmt.Sprintf("%d SUCCESS RECV 8B", k))
	}
}

// qp/5, async/2, qp/12: A QP in RTR responds, sends no requests, and raises
// COMM_EST once, so that a passive side that lost the RTU can move to RTS.
func TestQPInRTRRespondsAndRaisesCommEst(t *testing.T) {
	for _, fl := range flavours {
		p, a := unconnected(t, fl, setup{}, verbs.QPStateRTR)
		p.recv(1, 8)
		p.send(wire.OpSendOnly, 0, data(8), ackReq)
		p.events(verbs.EventCommEst)
		p.expect("ACK 0 msn 1")
		p.send(wire.OpWriteOnly, 1, p.at(0, 8), data(8), ackReq)
		p.expect("ACK 1 msn 2")
		p.send(wire.OpReadRequest, 2, p.at(0, 8), ackReq)
		p.expect("RR_ONLY 2 8B msn 3")
		p.events()
		p.moveUpTo(a, verbs.QPStateRTS)
		p.send(wire.OpWriteOnly, 3, p.at(0, 8), data(8), ackReq)
		p.expect("ACK 3 msn 4")
		p.events()
		p.post(2, verbs.OpSend, 4)
		p.expect("SEND_ONLY 0 4B ackreq")
		p.ack(0)
		p.wcs("1 SUCCESS RECV 8B", "2 SUCCESS SEND")

		// After RESET the event is raised again.
		p.enter(verbs.QPStateReset)
		p.moveUpTo(a, verbs.QPStateRTR)
		p.send(wire.OpWriteOnly, 0, p.at(0, 8), data(8), ackReq)
		p.events(verbs.EventCommEst)
		p.expect("ACK 0 msn 1")
	}
}

// async/2: Only a valid request of the peer raises COMM_EST.
func TestCommEstNeedsValidRequest(t *testing.T) {
	p, _ := unconnected(t, flavours[0], setup{}, verbs.QPStateRTR)
	request := func(edits ...edit) {
		p.send(wire.OpWriteOnly, 0, append([]edit{p.at(0, 8), data(8), ackReq}, edits...)...)
	}

	request(withPKey(0x8001))
	request(toQPN(p.q.num + 1))
	request(over(wire.TransportUC))
	p.ack(0)
	p.send(wire.OpAcknowledge, 0, asCNP)
	spoilt := p.build(wire.OpWriteOnly, 0, p.at(0, 8), data(8))
	spoilt.Payload[30] ^= 1
	p.deliver(spoilt)
	foreign := p.build(wire.OpWriteOnly, 0, p.at(0, 8), data(8))
	p.redeliver(foreign, unrelated, p.h.addr)
	p.events()
	p.expect()

	request()
	p.events(verbs.EventCommEst)
	p.expect("ACK 0 msn 1")
}

// qp/5: Before RTR and in ERR, packets are dropped without a response.
func TestQPBeforeRTRAndInERRDropsPackets(t *testing.T) {
	fresh := newPeer(t, flavours[0], setup{nic: func(c *Config) { c.PKeys = []uint16{0x8001, 0xffff} }, attr: func(a *verbs.QPAttr) { a.PKeyIndex = 1 }})
	fresh.q = fresh.h.qp(verbs.QPTypeRC, nil)
	fresh.send(wire.OpWriteOnly, 0, fresh.at(0, 8), data(8), ackReq)
	fresh.drops("drop_qp_state 1")
	if n := fresh.h.nic.Port().BadPKeys; n != 0 {
		t.Errorf("%d P_Key violations by a packet for a QP without a partition", n)
	}
	for _, state := range []verbs.QPState{verbs.QPStateReset, verbs.QPStateInit, verbs.QPStateErr} {
		p, a := unconnected(t, flavours[0], setup{}, min(state, verbs.QPStateRTS))
		if state == verbs.QPStateErr {
			p.enter(state)
		}
		p.expect()
		expectUnchanged(t, p.q, func() {
			p.send(wire.OpWriteOnly, 0, p.at(0, 8), data(8), ackReq)
			p.send(wire.OpReadRequest, 0, p.at(0, 8), ackReq)
			p.ack(0)
			p.expect()
		})
		p.drops("drop_qp_state 3")
		p.expectMemoryUnchanged()
		if n := p.h.nic.Port().BadPKeys; n != 0 {
			t.Errorf("in %v: %d P_Key violations", state, n)
		}
		if state == verbs.QPStateErr {
			p.enter(verbs.QPStateReset)
		}
		p.moveUpTo(a, verbs.QPStateRTS)
		p.send(wire.OpWriteOnly, 0, p.at(0, 8), data(8), ackReq)
		p.expect("ACK 0 msn 1")
	}
}

// qp/6: RESET clears queues, sequence numbers, MSN, credits, replay entries, timers
// and the rate limit.
func TestResetRestoresInitialState(t *testing.T) {
	for _, via := range []string{"RTS", "SQD", "ERR"} {
		for _, fl := range flavours {
			t.Run(via+" "+fl.name, func(t *testing.T) {
				fresh := newPeer(t, fl, setup{})
				p := newPeer(t, fl, setup{})
				p.changeAllState()
				switch via {
				case "SQD":
					p.enter(verbs.QPStateSQD)
				case "ERR":
					p.enter(verbs.QPStateErr)
				}
				p.h.poll()
				p.enter(verbs.QPStateReset)
				fresh.enter(verbs.QPStateReset)
				p.expectLikeNew(fresh)
				p.silence(time.Minute)
				p.wcs()
				p.events()

				p.now = 1
				a := connAttr(p.addr, peerQPN)
				a.PathMTU, a.RQPSN, a.SQPSN = verbs.MTUFor(fl.mtu), uint32(fl.rq), uint32(fl.sq)
				p.moveUpTo(a, verbs.QPStateRTS)
				// Former duplicates are new requests now, also atomics.
				p.recv(7, 8)
				p.send(wire.OpFetchAdd, 0, p.word(64, 5, 0))
				p.expect(fmt.Sprintf("ATOMIC_ACKNOWLEDGE 0 was %d msn 1", p.wordValue(targetData[64:])+5))
				p.send(wire.OpSendOnly, 1, data(8), ackReq)
				p.expect("ACK 1 msn 2")
				p.post(8, verbs.OpSend, 4)
				p.expect("SEND_ONLY 0 4B ackreq")
				p.ack(0)
				p.wcs("7 SUCCESS RECV 8B", "8 SUCCESS SEND")
			})
		}
	}
}

// changeAllState changes the state of every part of the QP.
func (p *peer) changeAllState() {
	p.Helper()
	p.recv(1, p.mtu+8)
	p.recv(2, 8)
	p.send(wire.OpFetchAdd, 0, p.word(64, 5, 0))
	p.send(wire.OpReadRequest, 1, p.at(0, 3*p.mtu))
	p.send(wire.OpSendFirst, 4, data(p.mtu))
	p.send(wire.OpSendLast, 9, data(8)) // a gap: NAK
	p.post(3, verbs.OpSend, 4)
	p.post(4, verbs.OpSend, 4)
	p.post(5, verbs.OpRDMARead, 3*p.mtu)
	p.drain()
	p.send(wire.OpAcknowledge, 0, syndrome(wire.Ack(0))) // no credits
	p.rnr(1, 14)
	p.send(wire.OpAcknowledge, 0, asCNP)
	p.deliverEdited(p.build(wire.OpReadRequest, 1, p.at(0, 3*p.mtu)), marked)
	p.send(wire.OpSendFirst, 4, data(p.mtu), ackReq) // a duplicate: an ACK is pending
	p.post(6, verbs.OpSend, 4)
}

// expectLikeNew compares the QP with a new one.
func (p *peer) expectLikeNew(fresh *peer) {
	p.Helper()
	got, want := *p.q, *fresh.q
	for _, q := range []*QP{&got, &want} {
		q.nic, q.cfg.SendCQ, q.cfg.RecvCQ, q.sq.ring, q.sq.slots = nil, nil, nil, nil, nic.Slots{}
		q.resp.recv.sges = nil                     // memory is kept
		q.queued, q.timer = false, nic.Timer[QP]{} // stale queue entries are allowed
		q.cnpPKey, q.rq = 0, nic.RecvQueue{}
	}
	if is, was := p.q.rq.String(), fresh.q.rq.String(); is != was {
		p.Errorf("receive queue %s, of a new QP %s", is, was)
	}
	differ(p.T, &want, &got)
	if at := p.q.deadline(); at != mono.Never {
		p.Errorf("deadline %v after RESET", at)
	}
}

// qp/10: Query returns the current state, the next PSNs, whether the send queue is
// draining, and the attributes.
func TestQueryReturnsCurrentState(t *testing.T) {
	each(t, setup{attr: func(a *verbs.QPAttr) { a.MaxRdAtomic, a.MaxDestRdAtomic = 3, 5 }}, func(p *peer) {
		check := func(state verbs.QPState, sent, received int, draining bool) {
			p.Helper()
			a := p.q.Query()
			want := fmt.Sprint(state, state, p.sq.Add(int32(sent)), p.rq.Add(int32(received)), draining)
			if got := fmt.Sprint(a.State, a.CurState, wire.PSN(a.SQPSN), wire.PSN(a.RQPSN), a.SQDraining); got != want {
				p.Errorf("got %s, want %s", got, want)
			}
		}
		check(verbs.QPStateRTS, 0, 0, false)
		p.post(1, verbs.OpSend, 2*p.mtu)
		check(verbs.QPStateRTS, 0, 0, false) // posted, but not sent
		p.expect(fmt.Sprintf("SEND_FIRST 0 %dB", p.mtu), fmt.Sprintf("SEND_LAST 1 %dB ackreq", p.mtu))
		check(verbs.QPStateRTS, 2, 0, false)
		p.post(2, verbs.OpRDMARead, 3*p.mtu)
		p.drain()
		check(verbs.QPStateRTS, 5, 0, false) // a READ uses the PSNs of its responses
		p.nak(0, wire.NakPSNSequence)
		check(verbs.QPStateRTS, 5, 0, false) // retransmission uses no new PSN
		p.send(wire.OpWriteOnly, 0, p.at(0, 8), data(8))
		check(verbs.QPStateRTS, 5, 1, false)
		p.send(wire.OpReadRequest, 1, p.at(0, 2*p.mtu))
		check(verbs.QPStateRTS, 5, 3, false)
		p.enter(verbs.QPStateSQD)
		check(verbs.QPStateSQD, 5, 3, true)
		p.enter(verbs.QPStateErr)
		check(verbs.QPStateErr, 5, 3, false)

		a := p.q.Query()
		if a.MaxRdAtomic != 3 || a.MaxDestRdAtomic != 5 || a.DestQPN != peerQPN || a.PathMTU.Bytes() != p.mtu ||
			a.AH.GRH.DGID != verbs.GIDFrom(p.addr) || a.Access != allAccess || a.Timeout != 14 || a.RetryCnt != 3 {
			p.Errorf("got %+v", a)
		}
		if want := (verbs.QPCaps{MaxSendWR: 128, MaxRecvWR: 128, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInline: 64}); a.Caps != want {
			p.Errorf("sizes %+v, want %+v", a.Caps, want)
		}
	})
}

// A destroyed QP sends no packets, completions or events, and Modify fails.
func TestDestroyedQPIsInactive(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		p.changeAllState()
		must.Do(p, p.h.nic.DestroyQP(p.q))
		p.silence(time.Minute)
		p.send(wire.OpSendOnly, 5, data(8), ackReq)
		p.send(wire.OpAcknowledge, 0, asCNP)
		p.silence(time.Minute)
		p.drops("drop_qpn 2")
		p.wcs("3 SUCCESS SEND") // completed before
		p.events()

		a := connAttr(p.addr, peerQPN)
		a.State = verbs.QPStateInit
		must.Fail(p, "modify after destroy", p.q.Modify(p.now, a, initMask|verbs.QPAttrAccessFlags), verbs.ErrInvalid)
		must.Fail(p, "post after destroy", p.tryPost(1), verbs.ErrInvalid)
		if err := p.h.nic.DestroyQP(p.q); !errors.Is(err, verbs.ErrInvalid) || !strings.Contains(err.Error(), p.q.name()) {
			p.Errorf("destroyed twice: %v", err)
		}
	})
}

// A QP number is reused only after all others, so that late packets do not reach a new QP.
func TestQPNumbersAreAssignedInTurn(t *testing.T) {
	h := newHost(t, "fd00::1", func(c *Config) { c.FirstQPN, c.Limits.QPs = 0x700, 3 })
	destroy := func(q *QP) {
		must.Do(t, h.nic.DestroyQP(q))
	}
	q := h.qp(verbs.QPTypeRC, nil)
	keep := h.qp(verbs.QPTypeRC, nil)
	destroy(q)
	var got []uint32
	for range 5 {
		q := h.qp(verbs.QPTypeRC, nil)
		got = append(got, q.Num())
		destroy(q)
	}
	if want := []uint32{0x702, 0x700, 0x702, 0x700, 0x702}; !reflect.DeepEqual(got, want) {
		t.Errorf("numbers %#x, want %#x", got, want)
	}
	h.qp(verbs.QPTypeRC, nil)
	h.qp(verbs.QPTypeRC, nil)
	c := QPConfig{Type: verbs.QPTypeRC, PD: h.pd, SendCQ: h.cq, RecvCQ: h.cq}
	must.Fail(t, "a QP beyond the limit of three", must.Err(h.nic.CreateQP(c)), verbs.ErrNoMemory)
	destroy(keep)
	if q := h.qp(verbs.QPTypeRC, nil); q.Num() != 0x701 {
		t.Errorf("the only free number is 0x701, got %#x", q.Num())
	}
}

// CreateQP rejects an invalid configuration without using a QP number.
func TestCreateQPRejectsInvalidConfig(t *testing.T) {
	h := newHost(t, "fd00::1", nil)
	xrcd := must.Get(h.nic.OpenXRCD())(t)
	basic := must.Get(h.nic.CreateSRQ(nic.SRQConfig{PD: h.pd, MaxWR: 4, MaxSGE: 1}))(t)
	xrc := must.Get(h.nic.CreateSRQ(nic.SRQConfig{Type: verbs.SRQXRC, PD: h.pd, MaxWR: 4, MaxSGE: 1, XRCD: xrcd, CQ: h.cq}))(t)
	limits := h.nic.Config().Limits
	for _, tc := range []struct {
		name string
		want error
		edit func(*QPConfig)
	}{
		{"unknown type", verbs.ErrNotSupported, func(c *QPConfig) { c.Type = 8 }},
		{"no send CQ", verbs.ErrInvalid, func(c *QPConfig) { c.SendCQ = nil }},
		{"no receive CQ", verbs.ErrInvalid, func(c *QPConfig) { c.RecvCQ = nil }},
		{"UD without a CQ", verbs.ErrInvalid, func(c *QPConfig) { c.Type, c.SendCQ = verbs.QPTypeUD, nil }},
		{"no such domain", verbs.ErrInvalid, func(c *QPConfig) { c.PD = 99 }},
		{"XRC SRQ attached", verbs.ErrInvalid, func(c *QPConfig) { c.SRQ = xrc }},
		{"XRC sender with an SRQ", verbs.ErrInvalid, func(c *QPConfig) { c.Type, c.SRQ = verbs.QPTypeXRCSend, basic }},
		{"XRC sender without a CQ", verbs.ErrInvalid, func(c *QPConfig) { c.Type, c.SendCQ = verbs.QPTypeXRCSend, nil }},
		{"XRC target with CQs", verbs.ErrInvalid, func(c *QPConfig) { c.Type, c.XRCD = verbs.QPTypeXRCRecv, xrcd }},
		{"XRC target without a domain", verbs.ErrInvalid, func(c *QPConfig) { *c = QPConfig{Type: verbs.QPTypeXRCRecv} }},
		{"XRC target of a foreign domain", verbs.ErrInvalid, func(c *QPConfig) { *c = QPConfig{Type: verbs.QPTypeXRCRecv, XRCD: new(nic.XRCD)} }},
		{"send queue too deep", verbs.ErrInvalid, func(c *QPConfig) { c.Caps.MaxSendWR = limits.QPWR + 1 }},
		{"receive queue too deep", verbs.ErrInvalid, func(c *QPConfig) { c.Caps.MaxRecvWR = limits.QPWR + 1 }},
		{"negative depth", verbs.ErrInvalid, func(c *QPConfig) { c.Caps.MaxRecvWR = -1 }},
		{"too many gather entries", verbs.ErrInvalid, func(c *QPConfig) { c.Caps.MaxSendSGE = limits.SGE + 1 }},
		{"too many scatter entries", verbs.ErrInvalid, func(c *QPConfig) { c.Caps.MaxRecvSGE = limits.SGE + 1 }},
		{"too much inline", verbs.ErrInvalid, func(c *QPConfig) { c.Caps.MaxInline = limits.Inline + 1 }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := QPConfig{Type: verbs.QPTypeRC, PD: h.pd, SendCQ: h.cq, RecvCQ: h.cq}
			tc.edit(&c)
			if _, err := h.nic.CreateQP(c); !errors.Is(err, tc.want) || !strings.Contains(err.Error(), "create_qp") {
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
	q := h.qp(verbs.QPTypeRC, func(c *QPConfig) {
		c.Caps = verbs.QPCaps{MaxSendWR: limits.QPWR, MaxRecvWR: limits.QPWR, MaxSendSGE: limits.SGE, MaxRecvSGE: limits.SGE, MaxInline: limits.Inline}
	})
	if q.Num() != h.nic.Config().FirstQPN {
		t.Errorf("the first QP has number %#x", q.Num())
	}
}
