package roce

import (
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

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
}, {
	ID: "qp/create/as-many-as-claimed", Cite: ibta("", "qp/1"), Level: conformance.Should, Needs: verbs.CapUD,
	Labels:  []string{"service:ud", conformance.Slow},
	Title:   "A device supports as many address handles as it claims",
	Sends:   "nothing",
	Expects: "that many handles",
	Defects: []string{"LimitsOverstated"}, Run: OnPort(func(p *Port) {
		attr := p.QueryDevice()
		const maxHandles = 1 << 17
		if attr.MaxAH <= 0 || attr.MaxAH > maxHandles {
			rig.BenchCannot("the device claims %d address handles, and at most %d are tried", attr.MaxAH, maxHandles)
		}
		path := p.peerAttr(p.Peer).AH
		for i := range attr.MaxAH {
			_, err := p.PD.CreateAH(path)
			p.Must(fmt.Sprintf("address handle %d of %d", i+1, attr.MaxAH), err)
		}
	}),
}})

// minQPCaps are capacities that every device supports.
var minQPCaps = verbs.QPCaps{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}

// freshQP returns an RC queue pair in RESET.
func (p *Port) freshQP() verbs.QP {
	return p.CreateQP(qpInit(p.Rig, verbs.QPTypeRC, minQPCaps))
}

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
	Sends:   "ACKs for two SENDs of the device, one by one",
	Expects: "SQ_DRAINED after the second, and not before; none if the event was not requested",
	Defects: []string{"SQNeverDrains"}, Run: OnPort(func(p *Port) {
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
			c.expectNoMoreEvents()
		}
	}),
}, {
	ID: "qp/sqd/cannot-be-left-while-draining", Cite: ibta("", "sqd/3"),
	Title:   "A queue pair cannot go from SQD to RTS while its send queue drains",
	Sends:   "an ACK for a SEND of the device, late",
	Expects: "that RTS is refused before the ACK and granted after it; ERR is granted at any time",
	Defects: []string{"SQDIgnored"}, Run: OnPort(func(p *Port) {
		toRTS := verbs.QPAttr{State: verbs.QPStateRTS}
		c := p.connect(Setup{signalAll: true})
		c.sendUnacked(1)
		c.toSQD(false)
		c.MustFail("SQD to RTS while it drains", c.QP.Modify(toRTS, verbs.QPAttrState), nil)
		a := c.QueryQP(c.QP)
		c.Check(a.State == verbs.QPStateSQD && a.SQDraining, "a draining queue pair in SQD", "%v, draining %v", a.State, a.SQDraining)
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

// expectServed fails the case unless the device answers the peer's n-th SEND, WRITE and
// READ.
func (c *Conn) expectServed(n int) {
	msn := uint32(3 * n)
	c.exchange(c.peerSend(3*n, 16), c.deviceAck(3*n, msn+1))
	c.ExpectRecv(uint64(n+1), 16)
	c.exchange(ib.WriteOnly(c.PeerPSN(3*n+1), c.RETH(64*n, 24), Data(24)).AckReq(), c.deviceAck(3*n+1, msn+2))
	c.exchange(ib.ReadRequest(c.PeerPSN(3*n+2), c.RETH(64*n, 24)), ib.ReadResponseOnly(c.PeerPSN(3*n+2), msn+3, Data(24)))
}
