package dgiwarp

import (
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// cookieSlot is the time slot of cookies: a cookie is valid in the slot in which it was made and
// in the next.
const cookieSlot = 5 * time.Second

var startReceiverCases = overRD.Cases([]conformance.Case{{
	ID: "dg/start/without-proof-is-challenged", Cite: cite("7.1", "dg/start/4"),
	Title:   "A start without a valid proof is answered with a Challenge, and keeps no state",
	Sends:   "starts without proof, with an invalid one, and of a packet that is not the first, each with a Send",
	Expects: "a Challenge of the epoch each time, and no receive; data without the start flag is of an unknown flow",
	Defects: []string{"NoChallenge"}, Run: onPeer(func(p *peer) {
		p.toDevice.epoch = p.Rand.Uint32()
		for _, proof := range []uint64{0, 0, 1, peerCookie, uint64(p.toDevice.epoch)} {
			for seq := range uint32(2) {
				p.send(p.withStart(proof, p.dataPacket(seq, iwarp.Send(1, data(8)))).AckNow())
				p.expectChallenge()
			}
		}
		p.expectIdle()
		p.send(p.dataPacket(1, iwarp.Send(1, data(8))))
		p.expectRefusal(iwarp.ReasonUnknownFlow)
	}),
}, {
	ID: "dg/start/good-cookie-starts", Cite: cite("7.1", "dg/start/5", "dg/start/4"),
	Title:   "A start with the cookie of its Challenge is accepted",
	Sends:   "a start with a Send, the same with the cookie, and a second packet",
	Expects: "a Challenge, then Acks, and one receive of each Send",
	Defects: []string{"NoChallenge"}, Run: onPeer(func(p *peer) {
		p.openFlowTo(1, iwarp.Send(1, data(8)))
		p.expectDeliveredTo(2, iwarp.Send(2, data(16)))
		p.expectIdle()
	}),
}, {
	ID: "dg/start/cookie-is-bound-to-its-source", Cite: cite("7.1", "dg/start/5"),
	Title:   "A cookie is valid only for the address, port and queue pair that it was sent to",
	Sends:   "a start with the cookie from another host, another port and another queue pair, then from its original source",
	Expects: "Challenges, then an Ack",
	Defects: []string{"CookieUnbound"}, Run: onPeer(func(p *peer) {
		cookie := p.startAndRecvChallenge(zeroLengthWrite())
		host, port, pair := *p, *p, *p
		host.route = p.defaultRoute(1)
		port.route = p.route.fromPort(peerPort + 1)
		pair.qpn++
		for _, thief := range []*peer{&host, &port, &pair} {
			thief.expectStartChallenged(cookie, zeroLengthWrite())
		}
		p.send(p.withStart(cookie, p.nextDataPacket(zeroLengthWrite())).AckNow())
		p.expectAck(1)
	}),
}, {
	ID: "dg/start/cookie-is-bound-to-its-epoch", Cite: cite("7.1", "dg/start/5"),
	Title:   "A cookie is valid only for its epoch and for the incarnation of the queue pair",
	Sends:   "a start of another epoch with the cookie, and the correct one after the queue pair was reset",
	Expects: "Challenges",
	Defects: []string{"CookieUnbound"}, Run: onPeer(func(p *peer) {
		cookie := p.startAndRecvChallenge(zeroLengthWrite())
		p.toDevice.epoch ^= 1
		p.expectStartChallenged(cookie, zeroLengthWrite())
		p.toDevice.epoch ^= 1
		p.ToState(p.qp, verbs.QPStateReset)
		p.toRTS()
		p.expectStartChallenged(cookie, zeroLengthWrite())
	}),
}, {
	ID: "dg/start/cookie-grows-old", Cite: cite("7.1", "dg/start/5"), Labels: []string{conformance.Slow},
	Title:   "A cookie is valid for 5 s at least, and for 10 s at most",
	Sends:   "starts with cookies that are almost 5 s and more than 10 s old, at several times",
	Expects: "an Ack for each of the former, a Challenge for each of the latter",
	Defects: []string{"CookieUnbound"}, Run: onPeer(func(p *peer) {
		// Four pairs, at different times within a slot, that do not overlap on the wire.
		const pairs, apart = 4, 1200 * time.Millisecond
		var young, old [pairs]*peer
		var cookies [pairs][2]uint64
		var born [pairs]time.Duration
		for i := range pairs {
			young[i], old[i], born[i] = p.peer(2*i), p.peer(2*i+1), p.Now()
			cookies[i] = [2]uint64{young[i].startAndRecvChallenge(zeroLengthWrite()), old[i].startAndRecvChallenge(zeroLengthWrite())}
			p.Sleep(apart)
		}
		for i, x := range young {
			p.Sleep(max(0, born[i]+cookieSlot-100*time.Millisecond-p.Now()))
			x.send(x.start(cookies[i][0], zeroLengthWrite()))
			x.expectAck(1)
		}
		for i, x := range old {
			p.Sleep(max(0, born[i]+2*cookieSlot+100*time.Millisecond-p.Now()))
			x.expectStartChallenged(cookies[i][1], zeroLengthWrite())
		}
	}),
}, {
	ID: "dg/start/cookie-starts-once", Cite: cite("7.1", "dg/start/5", "dg/start/7"),
	Title:   "A cookie is invalid after another flow has replaced its flow",
	Sends:   "a start with a cookie, a start of another flow with its cookie, then the first start again",
	Expects: "Acks for the flows and one receive of each; a Challenge for the repeated start",
	Defects: []string{"CookieUnbound"}, Run: onPeer(func(p *peer) {
		cookie := p.startAndRecvChallenge(iwarp.Send(1, data(8)))
		start := p.withStart(cookie, p.nextDataPacket(iwarp.Send(1, data(8)))).AckNow()
		p.send(start)
		p.expectAck(1)
		p.expectRecv(1, data(8))
		first := p.toDevice
		p.openFlowTo(2, iwarp.Send(1, data(16)))
		p.toDevice = first
		p.send(start)
		p.expectChallenge()
		p.expectNoCompletionYet()
	}),
}, {
	ID: "dg/start/own-epoch-is-a-proof", Cite: cite("7.1", "dg/start/6"),
	Title:   "The epoch of the device's own flow to a peer is a proof for the flow in the other direction, if none is known",
	Sends:   "a start with the epoch of the device's flow; another one when the first flow is known; one with another epoch",
	Expects: "an Ack for the first, Challenges for the others",
	Defects: []string{"AnswersChallenged"}, Run: onPeer(func(p *peer) {
		p.establishDeviceFlow()
		p.toDevice = flow{epoch: p.Rand.Uint32()}
		p.expectStartChallenged(uint64(p.fromDeviceFlow.epoch)^1, iwarp.Send(1, data(8)))
		p.send(p.withStart(uint64(p.fromDeviceFlow.epoch), p.nextDataPacket(iwarp.Send(1, data(8)))).AckNow())
		p.expectAck(1)
		p.expectRecv(1, data(8))
		p.toDevice = flow{epoch: p.toDevice.epoch + 1}
		p.expectStartChallenged(uint64(p.fromDeviceFlow.epoch), iwarp.Send(1, data(8)))
	}),
}, {
	ID: "dg/start/new-flow-replaces-the-old", Cite: cite("7.1", "dg/start/7"),
	Title:   "A new flow replaces the flow from the same source, and drops its packets after a gap",
	Sends:   "a packet after a gap, a new flow, then the missing packet of the old flow",
	Expects: "an Ack and a receive for the new flow, a Refusal for the old one, and nothing of it delivered",
	Defects: []string{"OldFlowKept"}, Run: onFlow(setup{receives: 4}, func(p *peer) {
		old := p.toDevice
		p.send(p.dataPacket(2, iwarp.Send(2, data(32))))
		p.expect(iwarp.RDAck(p.toDevice.epoch, 1))
		p.openFlowTo(1, iwarp.Send(1, data(8)))
		fresh := p.toDevice
		p.toDevice = old
		p.send(p.dataPacket(1, iwarp.Send(1, data(16))).AckNow())
		p.expectRefusal(iwarp.ReasonUnknownFlow)
		p.toDevice = fresh
		p.expectDeliveredTo(2, iwarp.Send(2, data(24)))
		p.expectIdle()
	}),
}, {
	ID: "dg/start/unknown-flow-is-refused", Cite: cite("7.1", "dg/start/11"),
	Title:   "Data of an unknown flow without the start flag is answered with a Refusal",
	Sends:   "data of another epoch from a peer with a flow and from one without, and data to an unknown queue pair",
	Expects: "Refusals: an unknown flow twice, and no such queue pair",
	Defects: []string{"UnknownFlowSilent"}, Run: onFlow(setup{receives: 4}, func(p *peer) {
		known := p.toDevice
		p.toDevice = flow{epoch: known.epoch ^ 1}
		p.send(p.dataPacket(0, iwarp.Send(1, data(8))))
		p.expectRefusal(iwarp.ReasonUnknownFlow)
		stranger := p.peer(1)
		stranger.toDevice.epoch = known.epoch
		stranger.send(stranger.dataPacket(0, iwarp.Send(1, data(8))))
		stranger.expectRefusal(iwarp.ReasonUnknownFlow)
		nobody := uint32(p.qp.QPN()) + 100
		stranger.send(stranger.dataPacket(0, iwarp.Send(1, data(8))).ToQP(nobody))
		a, ok := p.nextPacket(p.ResponseTimeout())
		p.Check(ok, "a Refusal", "nothing in %v", p.ResponseTimeout())
		p.checkPacket(iwarp.Refusal(known.epoch, iwarp.ReasonNoQP).ToQP(stranger.qpn).FromQP(nobody), a)
		p.toDevice = known
		p.expectDeliveredTo(1, iwarp.Send(1, data(8)))
		p.ExpectNoCompletion()
	}),
}, {
	ID: "dg/start/only-data-is-refused", Cite: cite("7.1", "dg/start/12"),
	Title:   "Only data packets are answered with a Refusal",
	Sends:   "Acks, Challenges and Refusals of unknown epochs, from an unknown peer and from a peer with a flow, to the queue pair and to one that there is not",
	Expects: "no packet",
	Defects: []string{"RefusesEverything"}, Run: onFlow(setup{receives: 4}, func(p *peer) {
		for _, from := range []*peer{p, p.peer(1)} {
			for _, pkt := range []iwarp.Packet{
				iwarp.RDAck(1, 0), iwarp.RDAck(1, 5).SACK(3), iwarp.RDAck(1, 0).AckNow(), iwarp.Challenge(1, 1, 1),
				iwarp.Refusal(1, iwarp.ReasonUnknownFlow), iwarp.Refusal(1, iwarp.ReasonNoQP),
			} {
				from.send(pkt, pkt.ToQP(uint32(p.qp.QPN())+100))
			}
		}
		p.expectSilence(silencePeriod)
	}),
}})
