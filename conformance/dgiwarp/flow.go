package dgiwarp

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// onFlow makes the body of a case from a function that uses a peer with a flow to the device: the
// RD packets of one direction between two queue pairs, which the device accepts after a Challenge.
func onFlow(s setup, body func(*peer)) func(*conformance.Bench) error {
	return onSetup(s, func(p *peer) {
		p.openFlow(zeroLengthWrite())
		body(p)
	})
}

// dataPacket returns data packet seq of the peer's flow.
func (p *peer) dataPacket(seq uint32, s iwarp.Segment) iwarp.Packet {
	return iwarp.RDData(p.toDeviceFlow.epoch, seq, s).Timestamp(uint32(p.Now() / time.Microsecond))
}

// nextDataPacket returns the next data packet of the peer's flow.
func (p *peer) nextDataPacket(s iwarp.Segment) iwarp.Packet {
	p.toDeviceFlow.next++
	return p.dataPacket(p.toDeviceFlow.next-1, s)
}

// withStart adds the start block of the peer's flow. proof is the Challenge's cookie, or noProof.
func (p *peer) withStart(proof uint64, pkt iwarp.Packet) iwarp.Packet {
	return pkt.Starting(proof, p.incarnation, p.key)
}

// start returns the first packet of the peer's flow. proof is the Challenge's cookie, or noProof.
func (p *peer) start(proof uint64, first iwarp.Segment) iwarp.Packet {
	return p.withStart(proof, p.dataPacket(0, first)).AckNow()
}

// expectStartChallenged sends the first packet of the peer's flow with a proof that the device must
// not accept, such as an outdated cookie. It fails the case unless the device sends a Challenge.
func (p *peer) expectStartChallenged(proof uint64, first iwarp.Segment) {
	p.send(p.start(proof, first))
	p.expectChallenge()
}

// startAndRecvChallenge starts a new flow to the device, without the cookie of a Challenge as proof
// of the peer's address. It returns the cookie of the Challenge that the device must answer with.
func (p *peer) startAndRecvChallenge(first iwarp.Segment) (cookie uint64) {
	p.toDeviceFlow = flow{epoch: p.Rand.Uint32()}
	p.send(p.start(noProof, first))
	return *p.expectChallenge().Challenge.Cookie
}

// expectChallenge fails the case unless the next packet is a Challenge with the peer's flow epoch.
func (p *peer) expectChallenge() arrival {
	want := iwarp.PacketOf(iwarp.KindChallenge)
	want.Challenge = &iwarp.ChallengeBlock{Epoch: &p.toDeviceFlow.epoch}
	return p.expect(want)
}

// openFlow establishes a flow to the device. The device answers the first packet by a Challenge;
// the peer sends the packet again with the Challenge's cookie.
func (p *peer) openFlow(first iwarp.Segment) {
	cookie := p.startAndRecvChallenge(first)
	p.send(p.withStart(cookie, p.nextDataPacket(first)).AckNow())
	p.expectAck(1)
}

// openFlowTo establishes a flow to the device with a Send, which must complete receive id.
func (p *peer) openFlowTo(id uint64, first iwarp.Segment) {
	p.openFlow(first)
	p.expectRecv(id, first.Payload)
}

// expectAck expects that the next packet acknowledges the peer's packets before next, and no later
// one (empty SACK). In real time, late retransmissions of the device may precede it.
func (p *peer) expectAck(next uint32) arrival {
	want := iwarp.RDAck(p.toDeviceFlow.epoch, next).SACK()
	if !p.Virtual {
		p.skipLateRetransmissions(want)
	}
	return p.expect(want)
}

// skipLateRetransmissions skips retransmissions of the device that crossed with the peer's packet:
// a slow machine lets the device time out, even several times. The first packet that is not such a
// retransmission, or that matches want, stays pending.
func (p *peer) skipLateRetransmissions(want iwarp.Packet) {
	const limit = 100
	for range limit {
		a, ok := p.nextPacket(p.ResponseTimeout())
		if !ok {
			return
		}
		retransmitted := a.Data != nil && iwarp.Val(a.Data.Epoch) == p.fromDeviceFlow.epoch && int32(iwarp.Val(a.Data.Seq)-p.fromDeviceFlow.next) < 0
		if !retransmitted || p.fromDevice(want).Matches(a.ReceivedPacket) {
			p.pending = append([]arrival{a}, p.pending...)
			return
		}
	}
}

// expectDelivered sends the peer's next data packet, and expects an Ack, which it returns.
func (p *peer) expectDelivered(s iwarp.Segment) arrival {
	p.send(p.nextDataPacket(s).AckNow())
	return p.expectAck(p.toDeviceFlow.next)
}

// expectDeliveredTo sends a Send message. It fails the case unless the device acknowledges it and completes
// the receive with work request ID id, with the payload.
func (p *peer) expectDeliveredTo(id uint64, send iwarp.Segment) {
	p.expectDelivered(send)
	p.expectRecv(id, send.Payload)
}

// expectRefusal fails the case unless the next packet is a Refusal of the peer's flow.
func (p *peer) expectRefusal(reason iwarp.RefusalReason) {
	p.expect(iwarp.Refusal(p.toDeviceFlow.epoch, reason))
}

// recvStart returns the first packet of a flow of the device, without responding to it. It must
// have sequence number 0 and a StartBlock, the header extension of packets that start a flow. In real
// time, late retransmissions of the flow before it may precede it.
func (p *peer) recvStart() arrival {
	want := iwarp.PacketOf(iwarp.KindRD)
	want.Data = &iwarp.DataBlock{Seq: new(uint32(0)), Start: new(iwarp.StartBlock)}
	if !p.Virtual && p.fromDeviceFlow.next > 0 {
		p.skipLateRetransmissions(want)
	}
	a := p.expect(want)
	p.fromDeviceFlow = flow{epoch: *a.Data.Epoch}
	p.trackData(a)
	return a
}

// recvStartOf posts requests, and returns the first packet of the flow that they start.
func (p *peer) recvStartOf(wrs ...verbs.SendWR) arrival {
	p.PostSend(p.qp, wrs...)
	return p.recvStart()
}

// acceptFlowOf posts requests, and returns the first packet of the flow that they start. If that
// has no proof of the device's address, the peer sends a Challenge, and the result is the packet
// with the Challenge's cookie.
func (p *peer) acceptFlowOf(wrs ...verbs.SendWR) arrival {
	if a := p.recvStartOf(wrs...); *a.Data.Start.Proof != noProof {
		return a
	}
	return p.challenge(peerCookie)
}

// challenge challenges the device's flow, and returns its first packet, resent with the cookie.
func (p *peer) challenge(cookie uint64) arrival {
	p.send(iwarp.Challenge(p.fromDeviceFlow.epoch, p.incarnation, cookie))
	return p.expectProof(cookie)
}

// expectProof fails the case unless the device sends the first packet of its flow again, with the
// cookie of the peer's Challenge. It skips retransmissions that crossed with the Challenge.
func (p *peer) expectProof(cookie uint64) arrival {
	want := iwarp.PacketOf(iwarp.KindRD)
	want.Data = &iwarp.DataBlock{Epoch: &p.fromDeviceFlow.epoch, Seq: new(uint32(0)), Start: new(iwarp.StartBlock)}
	a := p.expect(want)
	for range maxLatePackets {
		if *a.Data.Start.Proof != noProof {
			break
		}
		a = p.expect(want)
	}
	want.Data.Start.Proof = &cookie
	p.checkPacket(want, a)
	p.trackData(a)
	return a
}

// trackData updates the state of the flow with a received data packet.
func (p *peer) trackData(a arrival) {
	p.fromDeviceFlow.lastTimestamp = iwarp.Val(a.Data.Timestamp)
	p.fromDeviceFlow.next = max(p.fromDeviceFlow.next, iwarp.Val(a.Data.Seq)+1)
}

// ack returns an Ack of the device's packets before next.
func (p *peer) ack(next uint32) iwarp.Packet {
	return iwarp.RDAck(p.fromDeviceFlow.epoch, next).Echo(p.fromDeviceFlow.lastTimestamp)
}

// ackAll acknowledges all received packets.
func (p *peer) ackAll() { p.send(p.ack(p.fromDeviceFlow.next)) }

// ackAndComplete acknowledges all received packets, and expects that the requests complete.
func (p *peer) ackAndComplete(ids ...uint64) {
	p.ackAll()
	p.ExpectCompletions(verbs.WCSuccess, ids...)
}

// refuseFlow refuses the device's flow, and fails the case unless request id fails.
func (p *peer) refuseFlow(id uint64) {
	p.send(iwarp.Refusal(p.fromDeviceFlow.epoch, iwarp.ReasonUnknownFlow))
	p.expectFlowFailure(id)
}

// expectFlowFailure fails the case unless request id, the oldest of a failed flow, fails with the
// status retries exceeded.
func (p *peer) expectFlowFailure(id uint64) {
	status := p.expectFailure(id)
	p.Check(status == verbs.WCRetryExcErr, "retries exceeded", "%v", status)
}

// nextData returns the next data packet to the peer; false after the timeout. It skips others.
func (p *peer) nextData(timeout time.Duration) (arrival, bool) {
	until := p.Now() + timeout
	for {
		a, ok := p.nextPacket(max(0, until-p.Now()))
		if !ok {
			return a, false
		}
		if a.Data != nil && iwarp.Val(a.Header.DestQP) == p.qpn {
			p.trackData(a)
			return a, true
		}
	}
}

// mustNextData returns the next data packet, or fails the case; want describes it in the failure.
func (p *peer) mustNextData(want string) arrival {
	a, ok := p.nextData(p.ResponseTimeout())
	p.Check(ok, want, "nothing in %v", p.ResponseTimeout())
	return a
}

// expectData expects packet seq as the next data packet, and skips retransmissions of earlier ones.
func (p *peer) expectData(seq uint32) arrival {
	missing := fmt.Sprintf("packet %d of the flow", seq)
	a := p.mustNextData(missing)
	for int32(*a.Data.Seq-seq) < 0 {
		a = p.mustNextData(missing)
	}
	want := iwarp.PacketOf(iwarp.KindRD)
	want.Data = &iwarp.DataBlock{Epoch: &p.fromDeviceFlow.epoch, Seq: &seq}
	p.checkPacket(p.fromDevice(want), a)
	return a
}

// expectDataRange fails the case unless the next n data packets are numbered from first on.
func (p *peer) expectDataRange(first, n uint32) {
	for seq := range n {
		p.expectData(first + seq)
	}
}

// establishDeviceFlow has the device send a message, which starts its flow, and acknowledges it.
func (p *peer) establishDeviceFlow() {
	p.acceptFlowOf(p.sendWR(establishID, 0, 8))
	p.ackAll()
	if !p.Virtual { // a busy machine may lose the Ack
		if _, again := p.nextData(2 * firstTimeout); again {
			p.ackAll()
		}
	}
	p.ExpectCompletion(establishID, verbs.WCSuccess)
}

// postInFlow establishes the device's flow, posts requests, and expects one packet for each.
func (p *peer) postInFlow(wrs ...verbs.SendWR) {
	p.establishDeviceFlow()
	p.PostSend(p.qp, wrs...)
	p.expectDataRange(1, uint32(len(wrs))) // packet 0 established the flow
}

const (
	noProof = 0 // in a start block: no Challenge was received
	// peerCookie is the cookie of the peer's Challenges.
	peerCookie = 0x0123456789abcdef
	// maxLatePackets is how many first packets of a flow may cross with the peer's Challenge.
	maxLatePackets = 2
	// establishID is the WRID of the Send that establishes a flow.
	establishID = 0xe57ab
)
