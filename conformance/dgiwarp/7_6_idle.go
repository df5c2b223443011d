package dgiwarp

import (
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// Timeouts of idle flows, and the maximum number of peers.
const (
	flowIdleTimeout = 10 * time.Second
	flowMemory      = 30 * time.Second
	maxPeers        = 65536
)

var idleCases = overRD.Cases([]conformance.Case{{
	ID: "dg/idle/new-flow-after-silence", Cite: cite("7.6", "dg/idle/1"), Labels: []string{conformance.Slow},
	Title:   "A sender that has received nothing from a peer for 10 s starts a new flow",
	Sends:   "an Ack for a Send, then for more than 10 s nothing but an Ack, a Challenge and a Refusal of another epoch",
	Expects: "a start with another epoch for the next Send",
	Defects: []string{"FlowGoesOn", "OtherEpochIsHeard"}, Run: onPeer(func(p *peer) {
		p.establishDeviceFlow()
		old := p.fromDeviceFlow.epoch
		p.Sleep(flowIdleTimeout / 2)
		p.send(iwarp.RDAck(old^1, 1), iwarp.Challenge(old^1, p.incarnation, peerCookie), iwarp.Refusal(old^1, iwarp.ReasonUnknownFlow))
		p.Sleep(flowIdleTimeout/2 + 500*time.Millisecond)
		p.establishDeviceFlow() // which begins with a start
		p.Check(p.fromDeviceFlow.epoch != old, "a new flow", "the old epoch %#x", old)
	}),
}, {
	ID: "dg/idle/remembered-for-thirty-seconds", Cite: cite("7.6", "dg/idle/2"), Labels: []string{conformance.Slow},
	Title:   "A receiver keeps a flow for 30 s after the last packet",
	Sends:   "a packet of a flow after 29 s of silence; of another flow a packet after 5 s, and the same 29 s later; of a third an Ack after 5 s, and a packet 29 s later",
	Expects: "Acks, and no second receive of the retransmission",
	Defects: []string{"ForgetsEarly"}, Run: onFlow(setup{receives: 4}, func(p *peer) {
		const early, almost = 5 * time.Second, flowMemory - time.Second
		again, acks := p.peer(1), p.peer(2)
		again.openFlow(zeroLengthWrite())
		acks.openFlow(zeroLengthWrite())
		p.Sleep(early)
		acks.establishDeviceFlow() // its Ack is a sign of life, too
		s := again.nextDataPacket(iwarp.Send(1, data(8))).AckNow()
		again.send(s)
		again.expectAck(again.toDeviceFlow.next)
		p.expectRecv(1, data(8))
		p.Sleep(almost - early)
		p.expectDeliveredTo(2, iwarp.Send(1, data(8)))
		p.Sleep(early) // 34 s since the flow began, and 29 s since its last packet
		again.send(s)
		again.expectAck(again.toDeviceFlow.next)
		acks.expectDelivered(zeroLengthWrite())
		p.ExpectNoCompletion()
	}),
}, {
	ID: "dg/idle/forgotten-after-thirty-seconds", Cite: cite("7.6", "dg/idle/2"), Labels: []string{conformance.Slow},
	Title:   "A receiver drops a flow that was idle for 30 s",
	Sends:   "packets of three flows after 32, 36 and 40 s of silence, until one is refused; a new flow",
	Expects: "a Refusal, for the third at the latest; a Challenge and an Ack",
	Defects: []string{"FlowGoesOn"}, Run: onFlow(setup{receives: 4}, func(p *peer) {
		// A device may check flows periodically. A packet renews its flow: each is tested once.
		peers := []*peer{p, p.peer(1), p.peer(2)}
		for _, x := range peers[1:] {
			x.openFlow(zeroLengthWrite())
		}
		p.Sleep(flowMemory - 2*time.Second)
		for _, x := range peers {
			p.Sleep(4 * time.Second)
			x.send(x.nextDataPacket(zeroLengthWrite()).AckNow())
			a := x.mustNextPacket("an answer")
			if a.Refusal != nil {
				p.checkPacket(x.fromDevice(iwarp.Refusal(x.toDeviceFlow.epoch, iwarp.ReasonUnknownFlow)), a)
				x.openFlowTo(1, iwarp.Send(1, data(8)))
				return
			}
		}
		p.Fail("a Refusal of a flow that was idle for 40 s", "an Ack")
	}),
}, {
	ID: "dg/idle/full-table-refuses", Cite: cite("7.6", "dg/idle/3"), Labels: []string{conformance.Slow},
	Title:   "A peer above the maximum is refused for lack of room, and no other is dropped",
	Sends:   "flows of 65,536 peers and of one more, then a packet of one of the first, and of the last",
	Expects: "a Refusal with reason 4 of the one, and Acks for the others",
	Defects: []string{"EvictsOldest"}, Run: onSetup(setup{receives: 1}, func(p *peer) {
		if !p.Virtual {
			rig.BenchCannot("270,000 packets in less than the idle timeout of 30 s")
		}
		from := func(n int) *peer {
			x := *p
			x.qpn, x.toDeviceFlow.epoch = uint32(n+1), uint32(n+1)
			return &x
		}
		starts := func(x *peer) arrival {
			x.send(x.start(noProof, zeroLengthWrite()))
			a := x.mustNextPacket("an answer to a start")
			if a.Challenge != nil {
				x.send(x.start(*a.Challenge.Cookie, zeroLengthWrite()))
				a = x.mustNextPacket("an answer to a start")
			}
			return a
		}
		for n := range maxPeers {
			x := from(n)
			p.checkPacket(x.fromDevice(iwarp.RDAck(x.toDeviceFlow.epoch, 1)), starts(x))
		}
		late := from(maxPeers)
		p.checkPacket(late.fromDevice(iwarp.Refusal(late.toDeviceFlow.epoch, iwarp.ReasonNoRoom)), starts(late))
		for _, n := range []int{0, 1, maxPeers / 2, maxPeers - 1} {
			x := from(n)
			x.send(x.dataPacket(1, zeroLengthWrite()).AckNow())
			x.expectAck(2)
		}
		p.ExpectState(p.qp, verbs.QPStateRTS)
	}),
}})
