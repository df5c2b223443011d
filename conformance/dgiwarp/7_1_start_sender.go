package dgiwarp

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

var startSenderCases = overRD.Cases([]conformance.Case{{
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
			b, ok := p.nextData(p.ResponseTimeout())
			p.Check(ok, "packets and their retransmissions", "nothing in %v", p.ResponseTimeout())
			p.Check(b.Data.Start != nil, "the start flag until the first Ack", "%v", b.Packet)
			p.Check(*b.Data.Start.Proof == *a.Data.Start.Proof && *b.Data.Start.SourceKey == deviceKey && *b.Data.Start.Incarnation == *a.Data.Start.Incarnation,
				"the same proof, incarnation and key", "%v", b.Packet)
		}
		p.ackAll()
		p.ExpectCompletions(verbs.WCSuccess, 1, 2, 3)
		p.PostSend(p.qp, p.sendWR(4, 0, 8))
		for {
			b, ok := p.nextData(p.ResponseTimeout())
			p.Check(ok, "packet 3", "nothing in %v", p.ResponseTimeout())
			if *b.Data.Seq == 3 { // not a packet that was in flight before the Ack
				p.Check(b.Data.Start == nil, "no start flag after an Ack", "%v", b.Packet)
				break
			}
		}
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
			p.toDevice.epoch = uint32(life)
			p.send(p.withStart(0, p.dataPacket(0, zeroLengthWrite())))
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
	Sends:   "a Challenge, and after the cookie one of another incarnation",
	Expects: "a request that fails; the next one starts a new flow, which completes",
	Defects: []string{"IncarnationsIgnored"}, Run: onPeer(func(p *peer) {
		p.recvStartOf(p.sendWR(1, 0, 8))
		p.challenge(peerCookie)
		p.incarnation++
		p.sendChallenge(peerCookie + 1)
		p.expectFailure(1)
		old := p.fromDeviceFlow.epoch
		p.establishDeviceFlow()
		p.Check(p.fromDeviceFlow.epoch != old, "a new flow", "the old epoch %#x", old)
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
	ID: "dg/start/new-incarnation-of-the-peer-fails-the-flow", Cite: cite("7.1", "dg/start/10"),
	Title:   "A start that shows a new incarnation of the peer fails the flow to it",
	Sends:   "a flow of the peer, no Ack for the device's, then a flow of another incarnation",
	Expects: "a request that fails",
	Defects: []string{"IncarnationsIgnored"}, Run: onFlow(setup{receives: 1}, func(p *peer) {
		p.acceptFlowOf(p.sendWR(1, 0, 8))
		p.incarnation++
		p.toDevice = flow{epoch: p.Rand.Uint32()}
		p.send(p.start(0, zeroLengthWrite()))
		cookie := p.awaitChallenge()
		p.send(p.withStart(cookie, p.nextDataPacket(zeroLengthWrite())).AckNow())
		p.expectFailure(1)
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
}})

// awaitChallenge returns the cookie of the next Challenge of the peer's flow. It skips data
// packets.
func (p *peer) awaitChallenge() uint64 {
	for {
		a, ok := p.nextPacket(p.ResponseTimeout())
		p.Check(ok, "a Challenge", "nothing in %v", p.ResponseTimeout())
		if a.Challenge != nil && *a.Challenge.Epoch == p.toDevice.epoch {
			return *a.Challenge.Cookie
		}
		p.Check(a.Data != nil, "a Challenge", "%v", a.Packet)
	}
}
