package dgiwarp

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// awaitChallenge skips data packets, and returns the cookie of the device's Challenge to the peer's
// flow: the peer has to send the cookie back to prove that it receives at its source address. Any
// other packet fails the case.
func (p *peer) awaitChallenge() uint64 {
	for {
		a := p.mustNextPacket("a Challenge")
		if a.Challenge != nil && *a.Challenge.Epoch == p.toDeviceFlow.epoch {
			return *a.Challenge.Cookie
		}
		p.Check(a.Data != nil, "a Challenge", "%v", a.Packet)
	}
}

// replaceFlow starts another flow from the peer to the device, in place of the first: it sends a
// Start without a cookie, and one with the cookie of the Challenge with which the device answers.
// awaitChallenge skips other packets of the device.
func (p *peer) replaceFlow() {
	p.toDeviceFlow = flow{epoch: p.Rand.Uint32()}
	p.send(p.start(noProof, zeroLengthWrite()))
	cookie := p.awaitChallenge()
	p.send(p.withStart(cookie, p.nextDataPacket(zeroLengthWrite())).AckNow())
}

// cookieSlot is the time slot of cookies, which are valid in their slot and in the next.
const cookieSlot = 5 * time.Second

var startCases = overRD.Cases([]conformance.Case{{
	ID: "dg/start/first-packet-carries-data", Cite: cite("7.1", "dg/start/1"),
	Title:   "A flow starts with its first packet, which has sequence number 0, data, a proof, and incarnation and key of its source",
	Sends:   "a Challenge",
	Expects: "a start with data and no proof, and the same with the cookie",
	Defects: []string{"StartFlagOnce"}, Run: onPeer(func(p *peer) {
		a := p.recvStartOf(p.sendWR(1, 0, 8))
		want := iwarp.RDData(p.fromDeviceFlow.epoch, 0, iwarp.Send(1, p.localMem.Buf[:8])).Starting(0, 0, deviceKey)
		want.Data.Start.Incarnation = nil
		p.checkPacket(want, a)
		p.Check(*a.Data.Start.Incarnation != 0, "an incarnation that is not 0", "0")
		p.checkPacket(want.Starting(peerCookie, *a.Data.Start.Incarnation, deviceKey), p.challenge(peerCookie))
		p.ackAndComplete(1)
	}),
}, {
	ID: "dg/start/flag-until-acknowledged", Cite: cite("7.1", "dg/start/1"),
	Title:   "All packets of a flow carry the start flag and block until the first Ack, and none after it",
	Sends:   "a Challenge, nothing for some time, then an Ack",
	Expects: "the start flag, the cookie, incarnation and key in all packets up to the Ack; none of it after",
	Defects: []string{"StartFlagOnce"}, Run: onPeer(func(p *peer) {
		a := p.acceptFlowOf(p.sendWR(1, 0, 8), p.sendWR(2, 0, 8), p.sendWR(3, 0, 8))
		// The other two, and retransmissions of all at a timeout.
		for range 5 {
			b := p.mustNextData("packets and their retransmissions")
			p.Check(b.Data.Start != nil, "the start flag until the first Ack", "%v", b.Packet)
			p.Check(*b.Data.Start.Proof == *a.Data.Start.Proof && *b.Data.Start.SourceKey == deviceKey && *b.Data.Start.Incarnation == *a.Data.Start.Incarnation,
				"the same proof, incarnation and key", "%v", b.Packet)
		}
		p.ackAndComplete(1, 2, 3)
		p.PostSend(p.qp, p.sendWR(4, 0, 8))
		b := p.expectData(3) // which skips packets that were in flight before the Ack
		p.Check(b.Data.Start == nil, "no start flag after an Ack", "%v", b.Packet)
	}),
}, {
	ID: "dg/start/epochs-are-not-guessable", Cite: cite("7.1", "dg/start/2"),
	Title:   "Epochs cannot be predicted from earlier ones, and are not reused",
	Sends:   "Refusals, for 24 flows to one peer; the device also starts flows to 24 others",
	Expects: "48 different epochs in no sequence",
	Defects: []string{"LivesAlike"}, Run: onPeer(func(p *peer) {
		var epochs []uint32
		for i := range 24 {
			p.establishDeviceFlow()
			epochs = append(epochs, p.fromDeviceFlow.epoch)
			p.PostSend(p.qp, p.sendWR(1, 0, 8))
			p.expectData(1)
			p.refuseFlow(1)
			other := p.peer(i + 1)
			other.establishDeviceFlow()
			epochs = append(epochs, other.fromDeviceFlow.epoch)
		}
		near := 0
		seen := make(map[uint32]bool)
		for i, e := range epochs {
			p.Check(!seen[e], "an epoch that was not used before", "%#x", e)
			seen[e] = true
			if i > 0 && int32(e-epochs[i-1])>>16 == 0 {
				near++
			}
		}
		p.Check(near < len(epochs)/4, "unpredictable epochs", "%d of %d slightly above the previous one: %#x …", near, len(epochs), epochs[:4])
	}),
}, {
	ID: "dg/start/incarnation-of-each-life", Cite: cite("7.1", "dg/start/3"),
	Title:   "The incarnation of a queue pair changes with each reset, and is not 0",
	Sends:   "a start without proof after each of several resets of a queue pair",
	Expects: "a Challenge with another incarnation in each, the same as in the device's start",
	Defects: []string{"LivesAlike"}, Run: onPeer(func(p *peer) {
		seen := make(map[uint32]bool)
		for life := range 8 {
			p.toDeviceFlow.epoch = uint32(life)
			p.send(p.withStart(noProof, p.dataPacket(0, zeroLengthWrite())))
			inc := *p.expectChallenge().Challenge.Incarnation
			p.Check(inc != 0, "an incarnation that is not 0", "0 after %d resets", life)
			p.Check(!seen[inc], "a new incarnation", "%#x after %d resets", inc, life)
			seen[inc] = true
			a := p.recvStartOf(p.sendWR(1, 0, 8))
			p.Check(*a.Data.Start.Incarnation == inc, "one incarnation between resets", "%#x in a Challenge and %#x in a start", inc, *a.Data.Start.Incarnation)
			p.ToState(p.qp, verbs.QPStateReset)
			p.toRTS()
		}
	}),
}, {
	ID: "dg/start/one-incarnation-in-a-life", Cite: cite("7.1", "dg/start/3"),
	Title:   "The incarnation of a queue pair is the same in all Challenges and starts until it is reset",
	Sends:   "a start without proof, the same with the cookie of its Challenge, and a start of another flow without proof; then the device sends",
	Expects: "the same incarnation in both Challenges, and in the device's start",
	Defects: []string{"IncarnationOfFlow"}, Run: onPeer(func(p *peer) {
		challenge := func() arrival {
			p.toDeviceFlow = flow{epoch: p.Rand.Uint32()}
			p.send(p.start(noProof, zeroLengthWrite()))
			return p.expectChallenge()
		}
		first := challenge().Challenge
		p.send(p.withStart(*first.Cookie, p.nextDataPacket(zeroLengthWrite())).AckNow())
		p.expectAck(1)
		again := *challenge().Challenge.Incarnation
		p.Check(again == *first.Incarnation, fmt.Sprintf("the incarnation %#x again", *first.Incarnation), "%#x in another Challenge", again)
		start := *p.recvStartOf(p.sendWR(1, 0, 8)).Data.Start.Incarnation
		p.Check(start == *first.Incarnation, fmt.Sprintf("the incarnation %#x again", *first.Incarnation), "%#x in a start", start)
	}),
}, {
	ID: "dg/start/challenge-is-answered-with-the-cookie", Cite: cite("7.1", "dg/start/8"),
	Title:   "A Challenge of a flow that is starting is answered by a retransmission with its cookie",
	Sends:   "three Challenges with different cookies, and an Ack",
	Expects: "the start again with each cookie, and a completion",
	Defects: []string{"ChallengeIgnored"}, Run: onPeer(func(p *peer) {
		p.recvStartOf(p.sendWR(1, 0, 8))
		for _, cookie := range []uint64{peerCookie, 1, 0xffffffffffffffff} {
			p.challenge(cookie)
		}
		p.ackAndComplete(1)
	}),
}, {
	ID: "dg/start/one-packet-without-proof", Cite: cite("7.1", "dg/start/8"),
	Title:   "A sender without a proof has at most one packet in flight",
	Sends:   "nothing, while the application posts ten Sends and a long one; then a Challenge",
	Expects: "only packet 0 and its retransmissions; after the Challenge the others",
	Defects: []string{"WindowBeforeProof"}, Run: onSetup(setup{memLen: 32 << 10}, func(p *peer) {
		for id := range uint64(10) {
			p.PostSend(p.qp, p.sendWR(id, 0, 8))
		}
		p.PostSend(p.qp, p.sendWR(10, 0, 32<<10))
		p.recvStart()
		for range 4 {
			p.expectData(0)
		}
		p.challenge(peerCookie)
		p.expectData(1)
	}),
}, {
	ID: "dg/start/other-incarnation-fails-the-flow", Cite: cite("7.1", "dg/start/9"),
	Title:   "A Challenge of another incarnation fails a flow that has sent a proof",
	Sends:   "two Challenges of one incarnation, and after the cookies one of another; again with each of three incarnations",
	Expects: "a request that fails each time; the next one starts a new flow, which completes at last",
	Defects: []string{"IncarnationsIgnored", "IncarnationOnce"}, Run: onPeer(func(p *peer) {
		for id := range uint64(3) {
			old := p.fromDeviceFlow.epoch
			p.recvStartOf(p.sendWR(id, 0, 8))
			p.Check(p.fromDeviceFlow.epoch != old, "a new flow", "the old epoch %#x", old)
			p.challenge(peerCookie)
			p.challenge(peerCookie + 1)
			p.incarnation++
			p.send(iwarp.Challenge(p.fromDeviceFlow.epoch, p.incarnation, peerCookie+2))
			p.expectFlowFailure(id)
		}
		p.establishDeviceFlow()
	}),
}, {
	ID: "dg/start/other-incarnation-after-the-own-epoch", Cite: cite("7.1", "dg/start/8", "dg/start/9"),
	Title:   "A flow whose proof is the epoch of the peer's flow answers a Challenge of the known incarnation, and fails at one of another",
	Sends:   "a flow of the peer; for the device's flow a Challenge of the same incarnation, and for that to another peer one of another incarnation",
	Expects: "a start with the peer's epoch as proof, the cookie, a completion; a failure",
	Defects: []string{"IncarnationsIgnored"}, Run: onFlow(setup{}, func(p *peer) {
		start := func(p *peer) {
			a := p.recvStartOf(p.sendWR(1, 0, 8))
			proof := *a.Data.Start.Proof
			p.Check(proof == noProof || proof == uint64(p.toDeviceFlow.epoch), fmt.Sprintf("no proof, or epoch %#x", p.toDeviceFlow.epoch), "%#x", proof)
			if proof == noProof {
				p.challenge(peerCookie)
			}
		}
		start(p)
		p.challenge(peerCookie + 1)
		p.ackAndComplete(1)
		other := p.peer(1)
		other.openFlow(zeroLengthWrite())
		start(other)
		other.send(iwarp.Challenge(other.fromDeviceFlow.epoch, other.incarnation+1, peerCookie+1))
		other.expectFlowFailure(1)
	}),
}, {
	ID: "dg/start/other-incarnation-before-a-proof-is-harmless", Cite: cite("7.1", "dg/start/9", "dg/start/10"),
	Title:   "A flow that has sent no proof survives a change of the peer's incarnation",
	Sends:   "a Refusal of a flow; Challenges of another incarnation for the one that follows",
	Expects: "the cookie, and a completion",
	Defects: []string{"ChallengeIgnored"}, Run: onPeer(func(p *peer) {
		p.postInFlow(p.sendWR(1, 0, 8))
		p.refuseFlow(1)
		p.incarnation++
		p.recvStartOf(p.sendWR(2, 0, 8))
		p.challenge(peerCookie)
		p.ackAndComplete(2)
	}),
}, {
	ID: "dg/start/new-incarnation-of-the-peer-fails-the-flow", Cite: cite("7.1", "dg/start/10", "dg/start/7"),
	Title:   "A start that shows a new incarnation of the peer fails the flow to it, and is accepted",
	Sends:   "a flow of the peer with a Read Request, no Ack for the device's, then a flow of another incarnation; later another flow of that",
	Expects: "a request that fails, and Acks of the new flow; a later request completes",
	Defects: []string{"IncarnationsIgnored", "IncarnationOfFirstStart"}, Run: onFlow(setup{receives: 1}, func(p *peer) {
		p.acceptFlowOf(p.sendWR(1, 0, 8))
		p.send(p.nextDataPacket(iwarp.ReadRequest(1, iwarp.At(peerSTag, peerTO), 8, p.targetAddr(0))).AckNow())
		p.expectData(1) // the Read Response
		p.syncDevice()
		p.drainArrived()
		p.incarnation++
		p.replaceFlow()
		p.expectFlowFailure(1)
		p.syncDevice()
		p.drainArrived()
		p.expectDelivered(zeroLengthWrite())
		p.acceptFlowOf(p.sendWR(2, 0, 8))
		p.replaceFlow()
		p.expectNoCompletionYet()
		p.ackAndComplete(2)
	}),
}, {
	ID: "dg/start/new-incarnation-before-a-proof-is-harmless", Cite: cite("7.1", "dg/start/10"), Labels: []string{conformance.Slow},
	Title:   "A start that shows a new incarnation of the peer does not fail a flow that has sent no proof",
	Sends:   "a flow of the peer, which is then silent for 11 s; no answer to the device's start, but a flow of another incarnation",
	Expects: "a start without proof, which goes on; with the cookie of a Challenge it completes",
	Defects: []string{"UnprovedFails"}, Run: onFlow(setup{}, func(p *peer) {
		p.Sleep(flowIdleTimeout + time.Second)
		a := p.recvStartOf(p.sendWR(1, 0, 8))
		p.Check(*a.Data.Start.Proof == noProof, "no proof after 11 s of silence", "%#x", *a.Data.Start.Proof)
		p.incarnation++
		p.replaceFlow()
		p.syncDevice()
		p.drainArrived()
		p.ExpectNoCompletion()
		p.challenge(peerCookie)
		p.ackAndComplete(1)
	}),
}, {
	ID: "dg/start/refusal-ends-an-acknowledged-flow", Cite: cite("7.1", "dg/start/11"),
	Title:   "A Refusal fails a flow that was acknowledged, and the next request starts another",
	Sends:   "an Ack for the first Send, and a Refusal of the flow after the second",
	Expects: "a success and a failure; then a start with another epoch",
	Defects: []string{"RefusalIgnored"}, Run: onPeer(func(p *peer) {
		p.postInFlow(p.sendWR(2, 0, 8))
		p.refuseFlow(2)
		old := p.fromDeviceFlow.epoch
		p.establishDeviceFlow()
		p.Check(p.fromDeviceFlow.epoch != old, "a new flow", "the old epoch %#x", old)
	}),
}, {
	ID: "dg/start/refused-start-goes-on-trying", Cite: cite("7.1", "dg/start/11"),
	Title:   "A flow that is still starting retries after a Refusal",
	Sends:   "Refusals with each reason for a start, then a Challenge and an Ack",
	Expects: "the start again, and a completion",
	Defects: []string{"AnyEpochHeeded"}, Run: onPeer(func(p *peer) {
		p.recvStartOf(p.sendWR(1, 0, 8))
		for _, reason := range []iwarp.RefusalReason{iwarp.ReasonUnknownFlow, iwarp.ReasonNoQP, iwarp.ReasonNotReady, iwarp.ReasonNoRoom} {
			p.send(iwarp.Refusal(p.fromDeviceFlow.epoch, reason))
			p.expectData(0)
		}
		p.ExpectNoCompletion()
		p.challenge(peerCookie)
		p.ackAndComplete(1)
	}),
}, {
	ID: "dg/start/other-epochs-are-ignored", Cite: cite("7.1", "dg/start/12"),
	Title:   "Challenges, Refusals and Acks of another epoch than that of the flow are ignored",
	Sends:   "a Challenge, an Ack and Refusals of other epochs, each before one of the correct epoch",
	Expects: "nothing in response to them: no cookie, no completion, no failure",
	Defects: []string{"AnyEpochHeeded"}, Run: onPeer(func(p *peer) {
		p.recvStartOf(p.sendWR(1, 0, 8))
		wrong := p.fromDeviceFlow.epoch ^ 1
		p.send(iwarp.Challenge(wrong, p.incarnation, peerCookie+1))
		p.challenge(peerCookie)
		p.send(iwarp.RDAck(wrong, 1).Echo(p.fromDeviceFlow.lastTimestamp))
		p.expectNoCompletionYet()
		p.ackAndComplete(1)
		p.PostSend(p.qp, p.sendWR(2, 0, 8))
		p.expectData(1)
		p.send(iwarp.Refusal(wrong, iwarp.ReasonUnknownFlow), iwarp.Refusal(0, iwarp.ReasonUnknownFlow))
		p.expectNoCompletionYet()
		p.ackAndComplete(2)
	}),
}, {
	ID: "dg/start/without-proof-is-challenged", Cite: cite("7.1", "dg/start/4"),
	Title:   "A start without a valid proof is answered with a Challenge, and keeps no state",
	Sends:   "starts without proof, with an invalid one, and of a packet that is not the first, each with a Send",
	Expects: "a Challenge of the epoch each time, and no receive; data without the start flag is of an unknown flow",
	Defects: []string{"NoChallenge"}, Run: onPeer(func(p *peer) {
		p.toDeviceFlow.epoch = p.Rand.Uint32()
		for _, proof := range []uint64{0, 0, 1, peerCookie, uint64(p.toDeviceFlow.epoch)} {
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
	Sends:   "a start with the cookie from another host, another port and another queue pair, and to another queue pair of the device, then from its original source",
	Expects: "Challenges, then an Ack",
	Defects: []string{"CookieUnbound"}, Run: onPeer(func(p *peer) {
		cookie := p.startAndRecvChallenge(zeroLengthWrite())
		host, port, pair := *p, *p, *p
		host.route = p.defaultRoute(1)
		port.route = p.route.fromPort(peerPort + 1)
		pair.qpn++
		target := p.newQP(setup{}).peer(0)
		target.toDeviceFlow = p.toDeviceFlow
		for _, thief := range []*peer{&host, &port, &pair, target} {
			thief.expectStartChallenged(cookie, zeroLengthWrite())
		}
		p.send(p.withStart(cookie, p.nextDataPacket(zeroLengthWrite())).AckNow())
		p.expectAck(1)
	}),
}, {
	ID: "dg/start/cookie-is-bound-to-its-epoch", Cite: cite("7.1", "dg/start/5"),
	Title:   "A cookie is valid only for its epoch and for the incarnation of the queue pair",
	Sends:   "starts of epochs that differ in one octet with the cookie, and the correct one after the queue pair was reset",
	Expects: "Challenges",
	Defects: []string{"CookieUnbound"}, Run: onPeer(func(p *peer) {
		cookie := p.startAndRecvChallenge(zeroLengthWrite())
		for octet := range 4 {
			p.toDeviceFlow.epoch ^= 1 << (8 * octet)
			p.expectStartChallenged(cookie, zeroLengthWrite())
			p.toDeviceFlow.epoch ^= 1 << (8 * octet)
		}
		p.ToState(p.qp, verbs.QPStateReset)
		p.toRTS()
		p.expectStartChallenged(cookie, zeroLengthWrite())
	}),
}, {
	ID: "dg/start/cookie-grows-old", Cite: cite("7.1", "dg/start/5"), Labels: []string{conformance.Slow},
	Title:   "A cookie is valid for 5 s at least, and for 10 s at most",
	Sends:   "starts with cookies that are almost 5 s and more than 10 s old, at several times",
	Expects: "an Ack for each of the former, a Challenge for each of the latter",
	Defects: []string{"CookieUnbound", "CookieOfLastSlotBad"}, Run: onPeer(func(p *peer) {
		if p.Virtual {
			p.Sleep(2 * cookieSlot) // the device has been there for several slots
		}
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
		first := p.toDeviceFlow
		p.openFlowTo(2, iwarp.Send(1, data(16)))
		p.toDeviceFlow = first
		p.send(start)
		p.expectChallenge()
		p.expectNoCompletionYet()
	}),
}, {
	ID: "dg/start/cookie-of-a-replaced-flow", Cite: cite("7.1", "dg/start/5"),
	Title:   "A cookie is invalid after another flow has replaced the flow that was known when the cookie was made",
	Sends:   "a flow, a start without a cookie, another flow, and the start again with the cookie of its Challenge",
	Expects: "receives of the two flows, and a Challenge for the start with the cookie",
	Defects: []string{"CookieForAnyKnownFlow"}, Run: onPeer(func(p *peer) {
		p.openFlowTo(1, iwarp.Send(1, data(8)))
		cookie := p.startAndRecvChallenge(iwarp.Send(1, data(8)))
		late := p.withStart(cookie, p.nextDataPacket(iwarp.Send(1, data(8)))).AckNow()
		waiting := p.toDeviceFlow
		p.openFlowTo(2, iwarp.Send(1, data(16)))
		p.toDeviceFlow = waiting
		p.send(late)
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
		p.toDeviceFlow = flow{epoch: p.Rand.Uint32()}
		p.expectStartChallenged(uint64(p.fromDeviceFlow.epoch)^1, iwarp.Send(1, data(8)))
		p.send(p.withStart(uint64(p.fromDeviceFlow.epoch), p.nextDataPacket(iwarp.Send(1, data(8)))).AckNow())
		p.expectAck(1)
		p.expectRecv(1, data(8))
		p.toDeviceFlow = flow{epoch: p.toDeviceFlow.epoch + 1}
		p.expectStartChallenged(uint64(p.fromDeviceFlow.epoch), iwarp.Send(1, data(8)))
	}),
}, {
	ID: "dg/start/new-flow-replaces-the-old", Cite: cite("7.1", "dg/start/7"),
	Title:   "A new flow replaces the flow from the same source, and drops its packets after a gap",
	Sends:   "a packet after a gap, a new flow, then the missing packet of the old flow",
	Expects: "an Ack and a receive for the new flow, a Refusal for the old one, and nothing of it delivered",
	Defects: []string{"OldFlowKept"}, Run: onFlow(setup{receives: 4}, func(p *peer) {
		old := p.toDeviceFlow
		p.send(p.dataPacket(2, iwarp.Send(2, data(32))))
		p.expect(iwarp.RDAck(p.toDeviceFlow.epoch, 1))
		p.openFlowTo(1, iwarp.Send(1, data(8)))
		fresh := p.toDeviceFlow
		p.toDeviceFlow = old
		p.send(p.dataPacket(1, iwarp.Send(1, data(16))).AckNow())
		p.expectRefusal(iwarp.ReasonUnknownFlow)
		p.toDeviceFlow = fresh
		p.expectDeliveredTo(2, iwarp.Send(2, data(24)))
		p.expectIdle()
	}),
}, {
	ID: "dg/start/new-flow-begins-afresh", Cite: cite("7.1", "dg/start/7", "dg/loss/1"),
	Title:   "The first Ack of a new flow tells nothing of the flow that it replaces",
	Sends:   "a packet of the old flow with CE, and at once the start of a new one",
	Expects: "one Ack of the new flow, with the start's timestamp and without flags",
	Defects: []string{"OldAckState"}, Run: onFlow(setup{}, func(p *peer) {
		old := p.toDeviceFlow
		cookie := p.startAndRecvChallenge(zeroLengthWrite())
		start := p.withStart(cookie, p.nextDataPacket(zeroLengthWrite())).Timestamp(77).AckNow()
		fresh := p.toDeviceFlow
		p.toDeviceFlow = old
		p.route.tclass = ce
		p.send(p.nextDataPacket(zeroLengthWrite()).Timestamp(11))
		p.route.tclass = ect0
		p.toDeviceFlow = fresh
		p.send(start)
		a := p.mustNextPacket("an Ack")
		if iwarp.Val(a.Ack.Epoch) == old.epoch { // in real time
			a = p.mustNextPacket("an Ack of the new flow")
		}
		p.checkPacket(p.fromDevice(iwarp.RDAck(fresh.epoch, 1).SACK().Echo(77).EditHeader(func(h *iwarp.PacketHeader) {
			h.Marked, h.Repeats = new(!p.Virtual && *a.Header.Marked), new(false)
		})), a)
		p.expectSilence(silencePeriod)
	}),
}, {
	ID: "dg/start/unknown-flow-is-refused", Cite: cite("7.1", "dg/start/11"),
	Title:   "Data of an unknown flow without the start flag is answered with a Refusal",
	Sends:   "data of another epoch from a peer with a flow and from one without, and data to an unknown queue pair",
	Expects: "Refusals: an unknown flow twice, and no such queue pair",
	Defects: []string{"UnknownFlowSilent"}, Run: onFlow(setup{receives: 4}, func(p *peer) {
		known := p.toDeviceFlow
		p.toDeviceFlow = flow{epoch: known.epoch ^ 1}
		p.send(p.dataPacket(0, iwarp.Send(1, data(8))))
		p.expectRefusal(iwarp.ReasonUnknownFlow)
		stranger := p.peer(1)
		stranger.toDeviceFlow.epoch = known.epoch
		stranger.send(stranger.dataPacket(0, iwarp.Send(1, data(8))))
		stranger.expectRefusal(iwarp.ReasonUnknownFlow)
		nobody := uint32(p.qp.QPN()) + 100
		stranger.send(stranger.dataPacket(0, iwarp.Send(1, data(8))).ToQP(nobody))
		p.checkPacket(iwarp.Refusal(known.epoch, iwarp.ReasonNoQP).ToQP(stranger.qpn).FromQP(nobody), p.mustNextPacket("a Refusal"))
		p.toDeviceFlow = known
		p.expectDeliveredTo(1, iwarp.Send(1, data(8)))
		p.ExpectNoCompletion()
	}),
}, {
	ID: "dg/start/queue-pairs-that-cannot-receive", Cite: cite("7.1", "dg/start/11", "dg/err/8"),
	Title:   "Data for a queue pair that is not ready to receive or was destroyed is refused with that reason, and accepted from RTR on",
	Sends:   "a start with a Send to a queue pair in RESET, INIT, RTR, RTS and RESET again, and after it was destroyed",
	Expects: "Refusals with reason 3, Acks and receives in RTR and RTS, a Refusal with reason 2",
	Defects: []string{"InitReceives"}, Run: onPeer(func(p *peer) {
		p.syncDevice() // creates the other queue pair
		refused := func(reason iwarp.RefusalReason) {
			p.toDeviceFlow = flow{epoch: p.Rand.Uint32()}
			p.send(p.start(noProof, iwarp.Send(1, data(8))))
			p.expectRefusal(reason)
		}
		p.ToState(p.qp, verbs.QPStateReset)
		refused(iwarp.ReasonNotReady)
		p.ToInit(p.qp, 0, deviceKey)
		refused(iwarp.ReasonNotReady)
		for id := range uint64(2) {
			p.PostRecv(p.qp, id+1, p.localMem.SGE(int(id)*p.recvLen, p.recvLen))
		}
		p.ToRTR(p.qp, verbs.QPAttr{})
		p.openFlowTo(1, iwarp.Send(1, data(8)))
		p.ToRTS(p.qp, verbs.QPAttr{})
		p.expectDeliveredTo(2, iwarp.Send(2, data(8)))
		old := p.toDeviceFlow
		p.ToState(p.qp, verbs.QPStateReset)
		refused(iwarp.ReasonNotReady)
		p.toRTS()
		p.toDeviceFlow = old
		p.send(p.dataPacket(1, zeroLengthWrite()))
		p.expectRefusal(iwarp.ReasonUnknownFlow) // the flow has ended with the reset
		number := uint32(p.qp.QPN())
		p.Must("a queue pair that can be destroyed", p.qp.Close())
		p.send(p.start(noProof, iwarp.Send(1, data(8))).ToQP(number))
		p.expectRefusal(iwarp.ReasonNoQP)
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
