package dgiwarp

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/dg"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// onFlow makes the body of a case from a function with a peer that has a flow to the device, of which one
// packet has been taken.
func onFlow(s setup, body func(*peer)) func(*conformance.Bench) error {
	return onSetup(s, func(p *peer) {
		p.openFlow(zeroLengthWrite())
		body(p)
	})
}

// timestamp is the peer's, as packets tell it.
func (p *peer) timestamp() uint32 { return uint32(p.Now() / time.Microsecond) }

// dataPacket is the peer's packet number seq with a segment.
func (p *peer) dataPacket(seq uint32, s iwarp.Segment) dg.Packet {
	return dg.Data(p.toDevice.epoch, seq, s).Timestamp(p.timestamp())
}

// nextDataPacket is the peer's next packet.
func (p *peer) nextDataPacket(s iwarp.Segment) dg.Packet {
	p.toDevice.next++
	return p.dataPacket(p.toDevice.next-1, s)
}

// withStart has a packet start the peer's flow.
func (p *peer) withStart(proof uint64, pkt dg.Packet) dg.Packet {
	return pkt.Starting(proof, p.incarnation, p.key)
}

// startAndRecvChallenge sends the start of a new flow without proof, and returns the cookie that
// the device wants to see.
func (p *peer) startAndRecvChallenge(first iwarp.Segment) (cookie uint64) {
	p.toDevice = flow{epoch: p.Rand.Uint32()}
	p.send(p.withStart(0, p.dataPacket(0, first)).AckNow())
	return *p.expectChallenge().Challenge.Cookie
}

// expectChallenge fails the case unless the next packet challenges the peer's flow.
func (p *peer) expectChallenge() arrival {
	want := dg.Of(dg.KindChallenge)
	want.Challenge = &dg.ChallengeBlock{Epoch: &p.toDevice.epoch}
	return p.expect(want)
}

// openFlow starts a flow to the device, as every peer does.
func (p *peer) openFlow(first iwarp.Segment) {
	cookie := p.startAndRecvChallenge(first)
	p.send(p.withStart(cookie, p.nextDataPacket(first)).AckNow())
	p.expectAck(1)
}

// expectAck fails the case unless the next packet acknowledges all of the peer's packets
// before next, and none after it.
func (p *peer) expectAck(next uint32) arrival {
	want := dg.Ack(p.toDevice.epoch, next).SACK()
	if !p.Virtual {
		p.skipLateRetransmissions(want)
	}
	return p.expect(want)
}

// skipLateRetransmissions lets packets pass that the device has sent again before it had the judge's
// Ack, which is slow where the machine is busy, unless they are what is wanted.
func (p *peer) skipLateRetransmissions(want dg.Packet) {
	for range maxLatePackets {
		a, ok := p.nextPacket(p.ResponseTimeout())
		if !ok {
			return
		}
		again := a.Data != nil && iwarp.Val(a.Data.Epoch) == p.fromDeviceFlow.epoch && int32(iwarp.Val(a.Data.Seq)-p.fromDeviceFlow.next) < 0
		if !again || dg.Matches(p.fromDevice(want), a.ReceivedPacket) {
			p.pending = append([]arrival{a}, p.pending...)
			return
		}
	}
}

// expectDelivered sends the peer's next packet, and fails the case unless it is acknowledged.
func (p *peer) expectDelivered(s iwarp.Segment) {
	p.send(p.nextDataPacket(s).AckNow())
	p.expectAck(p.toDevice.next)
}

// expectRefusal fails the case unless the next packet is a Refusal of the peer's flow.
func (p *peer) expectRefusal(reason dg.Reason) { p.expect(dg.Refusal(p.toDevice.epoch, reason)) }

// peerCookie is what the peer wants to see before it takes a flow.
const peerCookie = 0x0123456789abcdef

// recvStart returns the first packet of a flow of the device, with what it is that starts
// it. Whatever it is answered is for the case to say.
func (p *peer) recvStart() arrival {
	want := dg.Of(dg.KindRD)
	want.Data = &dg.DataBlock{Seq: new(uint32(0)), Start: new(dg.StartBlock)}
	a := p.expect(want)
	p.fromDeviceFlow = flow{epoch: *a.Data.Epoch}
	p.trackData(a)
	return a
}

// acceptFlow takes the start of a flow of the device, and returns its first packet. One
// without proof is challenged, as by any receiver.
func (p *peer) acceptFlow() arrival {
	a := p.recvStart()
	if *a.Data.Start.Proof != 0 {
		return a
	}
	p.sendChallenge(peerCookie)
	return p.expectProof(peerCookie)
}

// expectProof fails the case unless the device sends the first packet of its flow with
// this cookie. It may have sent that without any before it had the cookie, if the judge
// was slow.
func (p *peer) expectProof(cookie uint64) arrival {
	want := dg.Of(dg.KindRD)
	want.Data = &dg.DataBlock{Epoch: &p.fromDeviceFlow.epoch, Seq: new(uint32(0)), Start: new(dg.StartBlock)}
	a := p.expect(want)
	for range maxLatePackets {
		if *a.Data.Start.Proof != 0 {
			break
		}
		a = p.expect(want)
	}
	want.Data.Start.Proof = &cookie
	p.checkPacket(want, a)
	p.trackData(a)
	return a
}

// maxLatePackets is how many packets may cross with the judge's answer to them.
const maxLatePackets = 2

// sendChallenge challenges the device's flow.
func (p *peer) sendChallenge(cookie uint64) {
	p.send(dg.Challenge(p.fromDeviceFlow.epoch, p.incarnation, cookie))
}

// trackData keeps the numbers of a packet that has come.
func (p *peer) trackData(a arrival) {
	p.fromDeviceFlow.lastTimestamp = iwarp.Val(a.Data.Timestamp)
	p.fromDeviceFlow.next = max(p.fromDeviceFlow.next, iwarp.Val(a.Data.Seq)+1)
}

// ack is an acknowledgement of the device's packets before next.
func (p *peer) ack(next uint32) dg.Packet {
	return dg.Ack(p.fromDeviceFlow.epoch, next).Echo(p.fromDeviceFlow.lastTimestamp)
}

// ackAll acknowledges all that has come.
func (p *peer) ackAll() { p.send(p.ack(p.fromDeviceFlow.next)) }

// nextData returns the next packet of the device's flow to the peer that has data, if
// there is one in time. Others are let pass.
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

// expectData fails the case unless the device's next packet with data is this one of its
// flow. Those before it pass: a device may send them again, if the judge was slow.
func (p *peer) expectData(seq uint32) arrival {
	a, ok := p.nextData(p.ResponseTimeout())
	for ok && int32(*a.Data.Seq-seq) < 0 {
		a, ok = p.nextData(p.ResponseTimeout())
	}
	if !ok {
		p.Fail(fmt.Sprintf("packet %d of the flow", seq), "nothing in %v", p.ResponseTimeout())
	}
	want := dg.Of(dg.KindRD)
	want.Data = &dg.DataBlock{Epoch: &p.fromDeviceFlow.epoch, Seq: &seq}
	p.checkPacket(p.fromDevice(want), a)
	return a
}

// establishDeviceFlow has the device's flow to the peer begin with a Send of its application, which
// completes.
func (p *peer) establishDeviceFlow() {
	p.PostSend(p.qp, p.sendWR(establishID, 0, 8))
	p.acceptFlow()
	p.ackAll()
	if _, ok := p.nextRetransmission(); ok {
		p.ackAll()
	}
	p.ExpectCompletion(establishID, verbs.WCSuccess)
}

// nextRetransmission returns what the device sends again because an Ack was lost, which happens
// where the machine is busy and nowhere else.
func (p *peer) nextRetransmission() (arrival, bool) {
	if p.Virtual {
		return arrival{}, false
	}
	return p.nextData(2 * firstTimeout)
}

// establishID is the ID of a request that is there to begin a flow.
const establishID = 0xe57ab
