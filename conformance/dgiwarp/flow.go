package dgiwarp

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/dg"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// onFlow makes a case of a body with a peer that has a flow to the device, of which one
// packet has been taken.
func onFlow(s setup, body func(*peer)) func(*conformance.Bench) error {
	return on(s, func(p *peer) {
		p.begin(emptyWrite())
		body(p)
	})
}

// clock is the peer's, as packets tell it.
func (p *peer) clock() uint32 { return uint32(p.Now() / time.Microsecond) }

// packet is the peer's packet number seq with a segment.
func (p *peer) packet(seq uint32, s iwarp.Segment) dg.Packet {
	return dg.Data(p.out.epoch, seq, s).Timestamp(p.clock())
}

// following is the peer's next packet.
func (p *peer) following(s iwarp.Segment) dg.Packet {
	p.out.next++
	return p.packet(p.out.next-1, s)
}

// starting has a packet start the peer's flow.
func (p *peer) starting(proof uint64, pkt dg.Packet) dg.Packet {
	return pkt.Starting(proof, p.incarnation, p.key)
}

// challenged sends the start of a new flow without proof, and returns the cookie that
// the device wants to see.
func (p *peer) challenged(first iwarp.Segment) (cookie uint64) {
	p.out = flow{epoch: p.Rand.Uint32()}
	p.send(p.starting(0, p.packet(0, first)).AckNow())
	return *p.expectChallenge().Challenge.Cookie
}

// expectChallenge ends the case unless the next packet challenges the peer's flow.
func (p *peer) expectChallenge() arrival {
	want := dg.Of(dg.KindChallenge)
	want.Challenge = &dg.ChallengeBlock{Epoch: &p.out.epoch}
	return p.expect(want)
}

// begin starts a flow to the device, as every peer does.
func (p *peer) begin(first iwarp.Segment) {
	cookie := p.challenged(first)
	p.send(p.starting(cookie, p.following(first)).AckNow())
	p.expectAck(1)
}

// expectAck ends the case unless the next packet acknowledges all of the peer's packets
// before next, and none behind it.
func (p *peer) expectAck(next uint32) arrival {
	want := dg.Ack(p.out.epoch, next).SACK()
	if !p.Virtual {
		p.passRepeats(want)
	}
	return p.expect(want)
}

// passRepeats lets packets pass that the device has sent again before it had the judge's
// Ack, which is slow where the machine is busy, unless they are what is wanted.
func (p *peer) passRepeats(want dg.Packet) {
	for range late {
		a, ok := p.next(p.ResponseTimeout())
		if !ok {
			return
		}
		again := a.Data != nil && iwarp.Val(a.Data.Epoch) == p.in.epoch && int32(iwarp.Val(a.Data.Seq)-p.in.next) < 0
		if !again || dg.Matches(p.fromQueue(want), a.ReceivedPacket) {
			p.early = append([]arrival{a}, p.early...)
			return
		}
	}
}

// delivers sends the peer's next packet, and ends the case unless it is acknowledged.
func (p *peer) delivers(s iwarp.Segment) {
	p.send(p.following(s).AckNow())
	p.expectAck(p.out.next)
}

// refused ends the case unless the next packet is a Refusal of the peer's flow.
func (p *peer) refused(reason dg.Reason) { p.expect(dg.Refusal(p.out.epoch, reason)) }

// peerCookie is what the peer wants to see before it takes a flow.
const peerCookie = 0x0123456789abcdef

// first returns the first packet of a flow of the device's, with what it is that starts
// it. Whatever it is answered is for the case to say.
func (p *peer) first() arrival {
	want := dg.Of(dg.KindRD)
	want.Data = &dg.DataBlock{Seq: new(uint32(0)), Start: new(dg.StartBlock)}
	a := p.expect(want)
	p.in = flow{epoch: *a.Data.Epoch}
	p.saw(a)
	return a
}

// welcome takes the start of a flow of the device's, and returns its first packet. One
// without proof is challenged, as by any receiver.
func (p *peer) welcome() arrival {
	a := p.first()
	if *a.Data.Start.Proof != 0 {
		return a
	}
	p.challenge(peerCookie)
	return p.showsProof(peerCookie)
}

// showsProof ends the case unless the device sends the first packet of its flow with
// this cookie. It may have sent that without any before it had the cookie, if the judge
// was slow.
func (p *peer) showsProof(cookie uint64) arrival {
	want := dg.Of(dg.KindRD)
	want.Data = &dg.DataBlock{Epoch: &p.in.epoch, Seq: new(uint32(0)), Start: new(dg.StartBlock)}
	a := p.expect(want)
	for range late {
		if *a.Data.Start.Proof != 0 {
			break
		}
		a = p.expect(want)
	}
	want.Data.Start.Proof = &cookie
	p.same(want, a)
	p.saw(a)
	return a
}

// late is how many packets may cross with the judge's answer to them.
const late = 2

// challenge challenges the device's flow.
func (p *peer) challenge(cookie uint64) {
	p.send(dg.Challenge(p.in.epoch, p.incarnation, cookie))
}

// saw keeps the numbers of a packet that has come.
func (p *peer) saw(a arrival) {
	p.in.stamp = iwarp.Val(a.Data.Timestamp)
	p.in.next = max(p.in.next, iwarp.Val(a.Data.Seq)+1)
}

// ack is an acknowledgement of the device's packets before next.
func (p *peer) ack(next uint32) dg.Packet { return dg.Ack(p.in.epoch, next).Echo(p.in.stamp) }

// acks acknowledges all that has come.
func (p *peer) acks() { p.send(p.ack(p.in.next)) }

// nextData returns the next packet of the device's flow to the peer that has data, if
// there is one in time. Others are let pass.
func (p *peer) nextData(timeout time.Duration) (arrival, bool) {
	until := p.Now() + timeout
	for {
		a, ok := p.next(max(0, until-p.Now()))
		if !ok {
			return a, false
		}
		if a.Data != nil && iwarp.Val(a.Header.DestQP) == p.qpn {
			p.saw(a)
			return a, true
		}
	}
}

// expectData ends the case unless the device's next packet with data is this one of its
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
	want.Data = &dg.DataBlock{Epoch: &p.in.epoch, Seq: &seq}
	p.same(p.fromQueue(want), a)
	return a
}

// established has the device's flow to the peer begin with a Send of its program, which
// completes.
func (p *peer) established() {
	p.PostSend(p.qp, p.sendWR(establishingID, 0, 8))
	p.welcome()
	p.acks()
	if _, ok := p.nextRepeat(); ok {
		p.acks()
	}
	p.ExpectCompletion(establishingID, verbs.WCSuccess)
}

// nextRepeat returns what the device sends again because an Ack was lost, which happens
// where the machine is busy and nowhere else.
func (p *peer) nextRepeat() (arrival, bool) {
	if p.Virtual {
		return arrival{}, false
	}
	return p.nextData(2 * firstTimeout)
}

// establishingID is the ID of a request that is there to begin a flow.
const establishingID = 0xe57ab
