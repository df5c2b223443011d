package roce

import (
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var qpStateCases = overRC.Cases([]conformance.Case{{
	ID: "qp/post/send-before-rts-refused", Cite: ibta("C10-96", "qp/3"),
	Title:   "Posting a send in RESET, INIT or RTR fails",
	Sends:   "nothing",
	Expects: "an error from the post in each of these states, over RC and, if supported, UC; and no request posted",
	Defects: []string{"EarlySendSwallowed"}, Run: onConnected(func(p *Port, kind verbs.QPType) {
		for _, state := range []verbs.QPState{verbs.QPStateInit, verbs.QPStateRTR, verbs.QPStateReset} {
			c := p.connect(Setup{qpType: kind, state: max(state, verbs.QPStateInit)})
			if state == verbs.QPStateReset {
				c.ToState(c.QP, verbs.QPStateReset)
			}
			n, err := c.postSend(1)
			c.MustFail(fmt.Sprintf("a send of %v in %v", kind, c.QueryQP(c.QP).State), err, nil)
			c.Check(n == 0, "no request posted", "%d", n)
		}
	}),
}, {
	ID: "qp/post/refused-send-leaves-nothing-queued", Cite: ibta("C10-96", "qp/3"),
	Title:   "A send that was refused because of the state is neither sent nor flushed later",
	Sends:   "an ACK for the one request that is posted in RTS",
	Expects: "no packet when the queue pair enters RTS; then this request, with the first PSN; and only its completion; over RC and, if supported, UC",
	Defects: []string{"RefusedWRStays"}, Run: onConnected(func(p *Port, kind verbs.QPType) {
		c := p.connect(Setup{qpType: kind, state: verbs.QPStateInit})
		c.postSend(1)
		c.ToState(c.QP, verbs.QPStateReset)
		c.postSend(2)
		c.ToInit(c.QP, allAccess&^verbs.AccessLocalWrite, 0)
		c.postSend(3)
		c.ToRTR(c.QP, c.Attr)
		c.postSend(4)
		c.ToRTS(c.QP, c.Attr)
		c.expectSilence(silencePeriod)
		c.PostSend(c.QP, c.SendWR(5, 16))
		c.expect(c.wantSend(0, 16)[0].On(serviceOf[kind]))
		if kind == verbs.QPTypeRC {
			c.Send(c.peerAck(0, 1))
		}
		c.ExpectCompletion(5, verbs.WCSuccess)
		c.ToState(c.QP, verbs.QPStateErr)
		c.expectNoCompletion()
	}),
}, {
	ID: "qp/post/send-beyond-the-queue-refused", Cite: ibta("C10-96", "qp/3"),
	Title:   "Sends that exceed the size of the send queue are refused, and no other is lost",
	Sends:   "an ACK for all requests of RC; nothing to a UC queue pair in SQD, if supported",
	Expects: "as many requests are posted as the queue has room for; those of RC are sent and complete, and no others; then there is room again; in ERR those that are left are flushed, and no others",
	Defects: []string{"OverflowSendQueue"}, Run: onConnected(func(p *Port, kind verbs.QPType) {
		c := p.connect(Setup{qpType: kind, caps: verbs.QPCaps{MaxSendWR: 8, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}})
		if kind == verbs.QPTypeUC { // requests of UC wait in SQD only, not for an ACK
			c.toSQD(false)
		}
		room := c.QueryQP(c.QP).Caps.MaxSendWR // the device may have rounded it up
		wrs := make([]verbs.SendWR, room+2)
		for i := range wrs {
			wrs[i] = c.SendWR(uint64(i), 8)
		}
		n, err := c.QP.PostSend(wrs)
		c.MustFail("one request too many", err, nil)
		c.Check(n == room, fmt.Sprintf("%d requests posted", room), "%d", n)
		n, err = c.QP.PostSend(wrs[room:])
		c.MustFail("another request too many", err, nil)
		c.Check(n == 0, "none posted", "%d", n)
		if kind == verbs.QPTypeUC {
			c.ToState(c.QP, verbs.QPStateErr)
			for i := range room {
				c.ExpectCompletion(uint64(i), verbs.WCWRFlushErr)
			}
			c.expectNoCompletion()
			return
		}
		for i := range room {
			c.expect(ib.SendOnly(c.DevicePSN(i), nil))
		}
		c.expectSilence(silencePeriod)
		c.Send(c.peerAck(room-1, uint32(room)))
		for i := range room {
			c.ExpectCompletion(uint64(i), verbs.WCSuccess)
		}
		c.PostSend(c.QP, wrs[room])
		c.expect(ib.SendOnly(c.DevicePSN(room), nil))
		c.ToState(c.QP, verbs.QPStateErr)
		c.ExpectCompletion(uint64(room), verbs.WCWRFlushErr)
		c.expectNoCompletion()
	}),
}, {
	ID: "qp/post/receive-taken-from-init-on", Cite: ibta("C10-97.2.1", "qp/4"),
	Title:   "Receives can be posted in INIT, RTR, RTS and SQD, and are used in the order of posting",
	Sends:   "four SENDs, for receives posted in four states",
	Expects: "an ACK for each, and the receives in order",
	Defects: []string{"RecvStateWrong"}, Run: onConn(Setup{state: verbs.QPStateInit}, func(c *Conn) {
		c.PostRecv(c.QP, 1, c.LocalMem.SGE(0, 64))
		c.ToRTR(c.QP, c.Attr)
		c.PostRecv(c.QP, 2, c.LocalMem.SGE(64, 64))
		c.ToRTS(c.QP, c.Attr)
		c.PostRecv(c.QP, 3, c.LocalMem.SGE(128, 64))
		c.toSQD(false)
		c.PostRecv(c.QP, 4, c.LocalMem.SGE(192, 64))
		for i := range 4 {
			c.expectAccepted(i)
		}
	}),
}, {
	ID: "qp/post/receive-in-reset-refused", Cite: ibta("C10-97.2.1", "qp/4"),
	Title:   "Posting a receive in RESET fails",
	Sends:   "nothing",
	Expects: "an error from the post, on a new queue pair and on one that was reset, over RC and, if supported, UC",
	Defects: []string{"RecvStateWrong"}, Run: onConnected(func(p *Port, kind verbs.QPType) {
		c := p.connect(Setup{qpType: kind})
		fresh := c.CreateQP(qpInit(c.Rig, kind, minQPCaps))
		c.ToState(c.QP, verbs.QPStateReset)
		for _, qp := range []verbs.QP{fresh, c.QP} {
			n, err := qp.PostRecv([]verbs.RecvWR{{WRID: 1, SGL: c.LocalMem.SGL(0, 64)}})
			c.MustFail("a receive in RESET", err, nil)
			c.Check(n == 0, "no receive posted", "%d", n)
		}
	}),
}, {
	ID: "qp/rtr/receives-and-answers", Cite: ibta("", "qp/5"),
	Title:   "A queue pair in RTR receives messages and answers them",
	Sends:   "SENDs, WRITEs, READs and a FETCH_ADD, if supported, to a queue pair in RTR; a SEND and a WRITE with immediate data to one of UC, if supported",
	Expects: "an answer to each request of RC, the messages of UC delivered, and nothing else",
	Defects: []string{"RTSOnly"}, Run: OnPort(func(p *Port) {
		c := p.connect(Setup{state: verbs.QPStateRTR, Receives: 2})
		c.expectServed(0)
		c.expectServed(1)
		if p.Caps.Has(verbs.CapAtomics) {
			c.expectOpExecuted(6, addOp, wordRETH(c.TargetMem, 40))
		}
		c.expectSilence(silencePeriod)
		c.ExpectState(c.QP, verbs.QPStateRTR)
		if !p.Caps.Has(verbs.CapUC) {
			return
		}
		uc := ucSetup(2)
		uc.state = verbs.QPStateRTR
		c = p.connect(uc)
		c.expectUCDelivery(0, 16, 1)
		c.Send(ib.WriteOnlyImm(c.PeerPSN(1), c.RETH(0, 24), 7, Data(24)).On(ib.UC))
		c.ExpectRecv(2, 24)
		c.expectSilence(silencePeriod)
		c.ExpectState(c.QP, verbs.QPStateRTR)
	}),
}, {
	ID: "qp/reset/psns-and-results-forgotten", Cite: ibta("", "qp/6"), Needs: verbs.CapAtomics,
	Title:   "RESET clears PSNs, MSN and the results of atomics: reconnected with the same PSNs, a queue pair executes new requests",
	Sends:   "a FETCH_ADD and a WRITE; the same PSNs with another FETCH_ADD and WRITE after RESET; at last the FETCH_ADD to a queue pair that was reconnected with a later PSN",
	Expects: "each is executed and answered with MSNs from 1 on; the device's requests start at the first PSN; no answer to the last",
	Defects: []string{"ResetKeepsState", "ResetKeepsResults"}, Run: onConn(Setup{}, func(c *Conn) {
		clear(c.TargetMem.Buf[:8])
		c.TargetMem.Snapshot() // makes the change visible to the device
		was := uint64(0)
		for round := range uint64(3) {
			c.exchange(ib.FetchAdd(c.PeerPSN(0), c.RETH(0, 8), 5+round), ib.AtomicAck(c.PeerPSN(0), 1, was))
			was += 5 + round
			c.exchange(ib.WriteOnly(c.PeerPSN(1), c.RETH(64, 16), rig.Pattern(16, byte(round))).AckReq(), c.deviceAck(1, 2))
			c.ExpectBytes(c.TargetMem, 64, rig.Pattern(16, byte(round)))
			c.request(0, c.SendWR(7, 8))
			c.ToState(c.QP, verbs.QPStateReset)
			if round == 2 {
				c.Attr.RQPSN += 2
			}
			c.reconnect()
		}
		c.Send(ib.FetchAdd(c.PeerPSN(-2), c.RETH(0, 8), 7))
		c.expectSilence(silencePeriod)
	}),
}, {
	ID: "qp/reset/queues-emptied", Cite: ibta("", "qp/6"),
	Title:   "RESET discards posted work: earlier sends and receives are neither executed nor flushed",
	Sends:   "a SEND, after a queue pair with posted sends and receives was reset and reconnected",
	Expects: "an RNR NAK, because there is no receive; no packet of the old requests; no completion",
	Defects: []string{"ResetKeepsQueues"}, Run: onConn(Setup{Receives: 4, signalAll: true, Modify: withTimeoutAndRetries(timeout67ms, 7)}, func(c *Conn) {
		c.sendUnacked(100)
		c.sendUnacked(101)
		c.ToState(c.QP, verbs.QPStateReset)
		c.Drain(sentSoFar) // discards retransmissions before the reset
		c.reconnect()
		c.expectNothing()
		c.exchange(c.peerSend(0, 16), ib.RNR(c.PeerPSN(0), c.Attr.MinRNRTimer, 0))
		c.ExpectNoCompletion()
	}),
}, {
	ID: "qp/reset/naks-messages-and-waits-forgotten", Cite: ibta("", "qp/6"),
	Title:   "RESET ends all that a connection was in: reconnected, a queue pair responds and sends as one that is new",
	Sends:   "before RESET a gap, a SEND without a receive, the FIRST packet of a SEND or WRITE, an RNR NAK of 655.36 ms, an ACK with 0 credits, or a SEND that is too long; after it a gap, the WRITE that was missing, an ACK of three SENDs, and a WRITE with an unknown key",
	Expects: "after RESET a sequence NAK, an ACK with MSN 1, the three SENDs long before that time, and a NAK and QP_ACCESS_ERR for the last WRITE",
	Defects: []string{"ResetKeepsNAK", "ResetKeepsMessage", "ResetKeepsRNRWait", "ResetKeepsCredits", "ResetKeepsCause"}, Run: onEachConn(Setup{}, connectionPasts, func(c *Conn, past connectionPast) {
		past.bring(c)
		c.ToState(c.QP, verbs.QPStateReset)
		c.Drain(sentSoFar)
		c.reconnect()
		c.exchangeIgnoringCNPs(c.peerWrite(1, 8), c.deviceNak(0, ib.NakSequence, 0))
		c.exchangeIgnoringCNPs(c.peerWrite(0, 8), c.deviceAck(0, 1))
		begun := c.Now()
		c.request(0, c.SendWR(7, 8), c.SendWR(8, 8), c.SendWR(9, 8))
		c.checkNoRNRWait(begun)
		c.completeWith(c.peerAck(2, 3), 7, 8, 9)
		c.pendingEvents() // those of the time before RESET
		c.expectRefused(ib.WriteOnly(c.PeerPSN(1), c.unknownKeyRETH(8), Data(8)), ib.NakRemoteAccess)
		c.expectQPEvent(verbs.EventQPAccessErr)
	}),
}, {
	ID: "qp/error/posted-work-flushed-in-order", Cite: ibta("", "qp/7"),
	Title:   "When a queue pair goes to ERR, every posted send and receive completes as flushed, in the order of posting",
	Sends:   "nothing, or the FIRST packet of a SEND, to RC and UC",
	Expects: "WR_FLUSH_ERR for four sends of RC, of UC in SQD and of XRC, signaled or not, in order, and for three receives, in order, also if a message has begun to arrive",
	Defects: []string{"FlushReversed", "ClaimedReceiveFlushedLast"}, Run: OnPort(func(p *Port) {
		c := p.connect(Setup{Receives: 3})
		c.postFourSends()
		c.ToState(c.QP, verbs.QPStateErr)
		c.expectFlushed(4, 3)
		c.Drain(sentSoFar) // the device may have sent some of the SENDs
		c = p.connect(Setup{Receives: 3, recvLen: 2 * MTU})
		c.beginMessage()
		c.ToState(c.QP, verbs.QPStateErr)
		c.expectFlushed(0, 3)
		if p.Caps.Has(verbs.CapUC) {
			c = p.connect(ucSetup(3))
			c.Send(ucSend(c.PeerPSN(0), 2*ucMTU)[0])
			c.Sync()
			c.toSQD(false)
			c.postFourSends()
			c.ToState(c.QP, verbs.QPStateErr)
			c.expectFlushed(4, 3)
		}
		if p.Caps.Has(verbs.CapXRC) {
			c = p.connect(Setup{qpType: verbs.QPTypeXRCSend})
			c.postFourSends()
			c.ToState(c.QP, verbs.QPStateErr)
			c.expectFlushed(4, 0)
			c.Drain(sentSoFar)
		}
	}),
}, {
	ID: "qp/error/pending-receives-are-no-messages", Cite: ibta("", "qp/7"),
	Title:   "Receives that are posted when a queue pair fails are flushed, and do not complete with success",
	Sends:   "a READ with a bad key, which fails the queue pair; to others, a NAK for their request, also after the FIRST packet of a SEND",
	Expects: "WR_FLUSH_ERR for each receive, in order",
	Defects: []string{"ErrCompletesRecvs", "ClaimedReceiveFlushedLast"}, Run: OnPort(func(p *Port) {
		c := p.connect(Setup{Receives: 3})
		c.exchange(ib.ReadRequest(c.PeerPSN(0), c.deregisteredRETH()), c.deviceNak(0, ib.NakRemoteAccess, 0))
		c.expectFlushed(0, 3)
		for _, begun := range []bool{false, true} {
			c = p.connect(Setup{Receives: 3, recvLen: 2 * MTU})
			if begun {
				c.beginMessage()
			}
			c.sendUnacked(101)
			c.Send(c.peerNak(0, ib.NakRemoteOp, 0))
			c.ExpectCompletion(101, verbs.WCRemOpErr)
			c.expectFlushed(0, 3)
		}
	}),
}, {
	ID: "qp/error/work-posted-afterwards-flushed", Cite: ibta("", "qp/8"),
	Title:   "Sends and receives that are posted to a queue pair in ERR complete as flushed",
	Sends:   "nothing",
	Expects: "WR_FLUSH_ERR for two sends and two receives, and no packet, over RC and, if supported, UC",
	Defects: []string{"NoFlushInError"}, Run: onConnected(func(p *Port, kind verbs.QPType) {
		c := p.connect(Setup{qpType: kind})
		c.ToState(c.QP, verbs.QPStateErr)
		for i := range uint64(2) {
			c.PostSend(c.QP, unsignaled(c.SendWR(101+i, 8)))
			c.PostRecv(c.QP, 1+i, c.LocalMem.SGE(64, 64))
		}
		c.expectFlushed(2, 2)
		c.expectSilence(silencePeriod)
	}),
}})

// serviceOf are the transports of connected queue pairs.
var serviceOf = map[verbs.QPType]ib.Transport{verbs.QPTypeRC: ib.RC, verbs.QPTypeUC: ib.UC}

// onConnected makes the body of a case that calls body for RC and, if the device has it, for UC.
func onConnected(body func(*Port, verbs.QPType)) func(*conformance.Bench) error {
	return OnPort(func(p *Port) {
		for _, kind := range []verbs.QPType{verbs.QPTypeRC, verbs.QPTypeUC} {
			if p.Caps.Has(capOf[kind]) {
				body(p, kind)
			}
		}
	})
}

// postFourSends posts four SENDs with IDs from 101 on, of which every other is signaled.
func (c *Conn) postFourSends() {
	c.PostSend(c.QP, unsignaled(c.SendWR(101, 8)), c.SendWR(102, 8), unsignaled(c.SendWR(103, 8)), c.SendWR(104, 8))
}

// beginMessage sends the FIRST packet of a SEND, and awaits its ACK.
func (c *Conn) beginMessage() {
	c.exchange(ib.SendFirst(c.PeerPSN(0), Data(MTU)).AckReq(), c.deviceAck(0, 0))
}

// reconnect moves the queue pair from RESET to RTS, with the same attributes.
func (c *Conn) reconnect() {
	c.ToInit(c.QP, allAccess&^verbs.AccessLocalWrite, 0)
	c.ToRTR(c.QP, c.Attr)
	c.ToRTS(c.QP, c.Attr)
}

// connectionPast is a state of a connection that RESET ends.
type connectionPast struct {
	name  string
	bring func(*Conn)
}

func (p connectionPast) String() string { return p.name }

var connectionPasts = []connectionPast{
	{"a gap", func(c *Conn) { c.exchangeIgnoringCNPs(c.peerWrite(1, 8), c.deviceNak(0, ib.NakSequence, 0)) }},
	{"no receive", func(c *Conn) { c.exchange(c.peerSend(0, 16), anyRNRNak(c.PeerPSN(0))) }},
	{"a SEND that has begun", func(c *Conn) {
		c.PostRecv(c.QP, 1, c.LocalMem.SGE(0, 2*MTU))
		c.exchange(ib.Send(c.PeerPSN(0), Data(2*MTU), MTU)[0].AckReq(), c.deviceAck(0, 0))
	}},
	{"a WRITE that has begun", func(c *Conn) {
		c.exchange(writeFirstOp.packet(c.PeerPSN(0), c.RETH(0, 0)), c.deviceAck(0, 0))
	}},
	{"an RNR wait", func(c *Conn) {
		c.request(0, c.SendWR(1, 8))
		c.Send(ib.RNR(c.DevicePSN(0), 0, 0))
		c.Sync()
	}},
	{"no credits", exhaustCredits},
	{"a message too long for its receive", func(c *Conn) {
		c.PostRecv(c.QP, 1, c.LocalMem.SGE(0, 8))
		c.exchange(c.peerSend(0, 16), c.deviceNak(0, ib.NakInvalidRequest, 0))
		c.ExpectCompletion(1, verbs.WCLocLenErr)
		c.AwaitState(c.QP, verbs.QPStateErr)
	}},
}

// checkNoRNRWait fails the case if the time since begun is more than half the RNR timer with code 0.
func (c *Conn) checkNoRNRWait(begun time.Duration) {
	took, most := c.Now()-begun, ib.RNRTimer(0)/2
	c.Check(took < most, fmt.Sprintf("packets within %v, without waiting for a timer", most), "after %v", took)
}

// postSend posts a SEND, and returns the results of the verb.
func (c *Conn) postSend(id uint64) (int, error) {
	return c.QP.PostSend([]verbs.SendWR{c.SendWR(id, 8)})
}

// expectFlushed fails the case unless the next completions are those of flushed sends, with IDs
// from 101 on, and flushed receives, with IDs from 1 on, each in order, and no other.
func (c *Conn) expectFlushed(sends, recvs int) {
	const send, receive = 0, 1
	next, end := [2]uint64{101, 1}, [2]uint64{101 + uint64(sends), 1 + uint64(recvs)} // IDs
	for next != end {
		wc := c.NextCompletion()
		q := receive
		if wc.WRID > 100 {
			q = send
		}
		c.Check(wc.Status == verbs.WCWRFlushErr && wc.WRID == next[q] && next[q] < end[q],
			fmt.Sprintf("send %d or receive %d flushed", next[send], next[receive]), "%s", rig.Describe(&wc))
		next[q]++
	}
	c.expectNoCompletion()
}

var qpCreateCases = conformance.Group{DefaultLabels: labelRC}.Cases([]conformance.Case{{
	ID: "qp/create/unknown-type-refused", Cite: ibta("", "qp/1"), Needs: verbs.CapRC,
	Title:   "A queue pair of an unknown type is refused",
	Sends:   "nothing",
	Expects: "a refusal of types 0, 5, 11 and 77",
	Defects: []string{"AnyQPType"}, Run: rig.Body(func(r *rig.Rig) {
		for _, kind := range []verbs.QPType{0, 5, 11, 77} {
			_, err := r.Device.CreateQP(qpInit(r, kind, minQPCaps))
			r.MustFail(fmt.Sprintf("a queue pair of type %d", kind), err, nil)
		}
	}),
}, {
	ID: "qp/create/raw-and-special-types-refused", Cite: annexA17("A17.5.8", "qp/13"), Needs: verbs.CapRC,
	Title:   "A queue pair of type SMI, raw IPv6 or raw EtherType is refused",
	Sends:   "nothing",
	Expects: "a refusal of types 0, 5 and 6",
	Defects: []string{"AnyQPType"}, Run: rig.Body(func(r *rig.Rig) {
		const smi, rawIPv6, rawEtherType = 0, 5, 6
		for _, kind := range []verbs.QPType{smi, rawIPv6, rawEtherType} {
			_, err := r.Device.CreateQP(qpInit(r, kind, minQPCaps))
			r.MustFail(fmt.Sprintf("a queue pair of type %d", kind), err, nil)
		}
	}),
}, {
	ID: "qp/create/deeper-than-the-device-refused", Cite: ibta("", "qp/1"), Needs: verbs.CapRC,
	Title:   "A queue pair with longer queues or scatter/gather lists than the device supports is refused",
	Sends:   "nothing",
	Expects: "one send, receive or list entry more than the device claims is refused; a queue pair with as many as it claims is created, if there is memory for it",
	Defects: []string{"CapsUnchecked"}, Run: rig.Body(func(r *rig.Rig) {
		attr := r.QueryDevice()
		for _, more := range []struct {
			what string
			caps verbs.QPCaps
		}{
			{"sends", verbs.QPCaps{MaxSendWR: attr.MaxQPWR + 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}},
			{"receives", verbs.QPCaps{MaxSendWR: 1, MaxRecvWR: attr.MaxQPWR + 1, MaxSendSGE: 1, MaxRecvSGE: 1}},
			{"entries a send", verbs.QPCaps{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: attr.MaxSGE + 1, MaxRecvSGE: 1}},
			{"entries a receive", verbs.QPCaps{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: attr.MaxSGE + 1}},
		} {
			_, err := r.Device.CreateQP(qpInit(r, verbs.QPTypeRC, more.caps))
			r.MustFail("a queue pair with more "+more.what+" than the device claims", err, nil)
		}
		_, err := r.Device.CreateQP(qpInit(r, verbs.QPTypeRC, verbs.QPCaps{MaxSendWR: attr.MaxQPWR, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}))
		if errors.Is(err, verbs.ErrNoMemory) {
			// The host may have less memory than the device's limits need.
			r.Note("the device's host has no memory for a queue pair with %d sends", attr.MaxQPWR)
			return
		}
		r.Must("a queue pair with as many sends as the device claims", err)
	}),
}})

// minQPCaps are capacities that every device supports.
var minQPCaps = verbs.QPCaps{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}

// qpInit returns the attributes of a queue pair that uses the default PD and CQ.
func qpInit(r *rig.Rig, kind verbs.QPType, caps verbs.QPCaps) verbs.QPInit {
	return verbs.QPInit{Type: kind, PD: r.PD, SendCQ: r.CQ, RecvCQ: r.CQ, Caps: caps}
}

var sqdCases = overRC.Cases([]conformance.Case{{
	ID: "qp/sqd/nothing-new-begins", Cite: ibta("", "sqd/1"),
	Title:   "In SQD the current message is finished, and no other is started",
	Sends:   "ACKs for a long SEND of the device, whose queue pair is moved to SQD after the first packet",
	Expects: "the rest of the SEND and its completion; nothing for the request that is posted in SQD",
	Defects: []string{"SQDIgnored"}, Run: onConn(Setup{signalAll: true, Modify: func(a *verbs.QPAttr) { a.PathMTU = verbs.MTU256 }}, func(c *Conn) {
		long := c.Memory(1<<17, verbs.AccessLocalWrite) // probably more packets than the device's window
		c.PostSend(c.QP, verbs.SendWR{WRID: 1, Opcode: verbs.OpSend, SGL: long.SGL(0, 1<<17)})
		pkt := c.expect(ib.SendFirst(c.DevicePSN(0), nil))
		c.toSQD(false)
		c.PostSend(c.QP, c.SendWR(2, 8))
		for n := 1; pkt.Opcode() != ib.OpSendLast; n++ {
			if pkt.HasAckReq() {
				c.Send(ib.Ack(pkt.PSN(), 0))
			}
			pkt = c.expect(ib.Packet{}.WithPSN(c.DevicePSN(n)))
		}
		c.completeWith(ib.Ack(pkt.PSN(), 1), 1)
		c.expectNothing()
		c.ExpectState(c.QP, verbs.QPStateSQD)
	}),
}, {
	ID: "qp/sqd/drained-is-reported", Cite: ibta("", "sqd/2"),
	Title:   "A queue pair in SQD raises SQ_DRAINED when its last request is acknowledged, if the event was requested",
	Sends:   "ACKs for two SENDs of the device, one by one; then an attribute is changed",
	Expects: "SQ_DRAINED after the second, and not before; none if the event was not requested, and none for the change",
	Defects: []string{"SQNeverDrains", "DrainedAgainByModify"}, Run: OnPort(func(p *Port) {
		for _, notify := range []bool{true, false} {
			c := p.connect(Setup{signalAll: true})
			c.sendUnacked(1)
			c.sendUnacked(2)
			c.toSQD(notify)
			c.completeWith(c.peerAck(0, 1), 1)
			c.expectNoMoreEvents()
			c.completeWith(c.peerAck(1, 2), 2)
			if notify {
				c.expectQPEvent(verbs.EventSQDrained)
			}
			c.Must("a change in SQD", c.QP.Modify(verbs.QPAttr{MinRNRTimer: 5}, verbs.QPAttrMinRNRTimer))
			c.expectNoMoreEvents()
		}
	}),
}, {
	ID: "qp/sqd/cannot-be-left-while-draining", Cite: ibta("", "sqd/3"),
	Title:   "A queue pair cannot go from SQD to RTS while its send queue drains",
	Sends:   "an RNR NAK for a SEND of the device, and an ACK when it is sent again",
	Expects: "that RTS is refused before the ACK, also during the RNR wait, and granted after it; ERR is granted at any time",
	Defects: []string{"SQDIgnored", "RNRWaitCountsAsDrained"}, Run: OnPort(func(p *Port) {
		toRTS := verbs.QPAttr{State: verbs.QPStateRTS}
		c := p.connect(Setup{signalAll: true})
		c.sendUnacked(1)
		c.toSQD(false)
		c.MustFail("SQD to RTS while it drains", c.QP.Modify(toRTS, verbs.QPAttrState), nil)
		a := c.QueryQP(c.QP)
		c.Check(a.State == verbs.QPStateSQD && a.SQDraining, "a draining queue pair in SQD", "%v, draining %v", a.State, a.SQDraining)
		const wait = 28 // 163.84 ms
		c.Send(ib.RNR(c.DevicePSN(0), wait, 0))
		c.Sync()
		c.MustFail("SQD to RTS during the RNR wait", c.QP.Modify(toRTS, verbs.QPAttrState), nil)
		c.expectAll(c.wantSend(0, 8))
		c.completeWith(c.peerAck(0, 1), 1)
		c.awaitDrained()
		c.Must("SQD to RTS when it has drained", c.QP.Modify(toRTS, verbs.QPAttrState))
		c = p.connect(Setup{signalAll: true})
		c.sendUnacked(1)
		c.toSQD(false)
		c.ToState(c.QP, verbs.QPStateErr)
		c.ExpectCompletion(1, verbs.WCWRFlushErr)
	}),
}, {
	ID: "qp/sqd/rts-resumes-by-itself", Cite: ibta("", "sqd/4"),
	Title:   "Requests that wait in SQD are sent when the queue pair returns to RTS, without another post",
	Sends:   "an ACK for the requests",
	Expects: "the two SENDs that were posted in SQD, in their order, and their completions",
	Defects: []string{"SQDNoResume"}, Run: onConn(Setup{signalAll: true}, func(c *Conn) {
		c.toSQD(false)
		c.awaitDrained()
		c.PostSend(c.QP, c.SendWR(1, 8), c.SendWR(2, 16))
		c.ToState(c.QP, verbs.QPStateRTS)
		c.expectAll(append(c.wantSend(0, 8), c.wantSend(1, 16)...))
		c.completeWith(c.peerAck(1, 2), 1, 2)
	}),
}, {
	ID: "qp/sqd/receiving-goes-on", Cite: ibta("", "sqd/5"),
	Title:   "A queue pair in SQD receives and answers as in RTS",
	Sends:   "a SEND, a WRITE and a READ, while the send queue drains and when it has",
	Expects: "an answer to each",
	Defects: []string{"RTSOnly"}, Run: onConn(Setup{signalAll: true, Receives: 2}, func(c *Conn) {
		c.sendUnacked(100)
		c.toSQD(false)
		c.expectServed(0)
		c.completeWith(c.peerAck(0, 1), 100)
		c.awaitDrained()
		c.expectServed(1)
		c.ExpectState(c.QP, verbs.QPStateSQD)
	}),
}})

// toSQD moves the queue pair from RTS to SQD, and requests the event SQ_DRAINED if notify is set.
func (c *Conn) toSQD(notify bool) {
	c.Must("a queue pair in SQD", c.QP.Modify(verbs.QPAttr{State: verbs.QPStateSQD, EnSQDAsyncNotify: notify}, verbs.QPAttrState|verbs.QPAttrEnSQDAsyncNotify))
}

// awaitDrained waits until the send queue is drained.
func (c *Conn) awaitDrained() {
	c.awaitCondition("a send queue that has drained", func() bool { return !c.QueryQP(c.QP).SQDraining })
}

// sendUnacked posts a SEND and waits for its packet, without acknowledging it.
func (c *Conn) sendUnacked(id uint64) {
	c.PostSend(c.QP, unsignaled(c.SendWR(id, 8)))
	c.expect(ib.SendOnly(ib.AnyPSN, nil))
}

// expectServed sends the peer's n-th SEND, WRITE and READ, counting from 0, which the device must
// execute.
func (c *Conn) expectServed(n int) {
	msn := uint32(3 * n)
	c.exchange(c.peerSend(3*n, 16), c.deviceAck(3*n, msn+1))
	c.ExpectRecv(uint64(n+1), 16)
	c.exchange(ib.WriteOnly(c.PeerPSN(3*n+1), c.RETH(64*n, 24), Data(24)).AckReq(), c.deviceAck(3*n+1, msn+2))
	c.exchange(ib.ReadRequest(c.PeerPSN(3*n+2), c.RETH(64*n, 24)), ib.ReadResponseOnly(c.PeerPSN(3*n+2), msn+3, Data(24)))
}
