package dgiwarp

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
)

// busySilence is shorter than the retry interval of a busy peer.
const busySilence = 500 * time.Microsecond

// The retry interval of a sender while its peer is busy.
const (
	firstBusyWait = time.Millisecond
	maxBusyWait   = 128 * time.Millisecond
)

var busyCases = overRD.Cases([]conformance.Case{{
	ID: "dg/busy/not-taken-and-said", Cite: cite("7.4", "dg/busy/1"),
	Title:   "A Send without a posted receive is dropped, and the Ack has window 0",
	Sends:   "a Send without a receive, twice; the same after a receive is posted",
	Expects: "Acks with window 0 that do not cover it; a receive of the third only",
	Defects: []string{"BusyAcknowledges"}, Run: onFlow(setup{}, func(p *peer) {
		s := p.nextDataPacket(iwarp.Send(1, data(8))).AckNow()
		for range 2 {
			p.send(s)
			p.expect(iwarp.RDAck(p.toDevice.epoch, 1).SACK().Window(0))
		}
		p.PostRecv(p.qp, 1, p.localMem.SGE(0, p.recvLen))
		p.expectNoCompletionYet()
		p.pending = nil // a waiting peer may get an Ack with a window
		p.send(s)
		p.expectRecv(1, data(8))
		a := p.expectAck(2)
		p.Check(*a.Ack.Window > 0, "a window that is not 0 after an accepted packet", "0")
	}),
}, {
	ID: "dg/busy/sender-asks-ever-more-rarely", Cite: cite("7.4", "dg/busy/2"),
	Title:   "A sender whose peer is busy retransmits only its oldest packet, after 1 ms, 2 ms and so on up to 128 ms",
	Sends:   "repeated Acks with window 0 for a Send",
	Expects: "retransmissions of the oldest packet of four, at doubling intervals",
	Defects: []string{"BusyHammers"}, Run: onPeer(func(p *peer) {
		p.establishDeviceFlow()
		p.PostSend(p.qp, p.sendWR(1, 0, 8), p.sendWR(2, 0, 8), p.sendWR(3, 0, 8), p.sendWR(4, 0, 8))
		p.expectDataRange(1, 3)
		last := p.expectData(4)
		p.sendBusy()
		if !p.Virtual { // a timeout retransmission may have crossed with it
			p.syncDevice()
			for _, a := range p.drain(0) {
				last = a
				p.sendBusy()
			}
		}
		for want := firstBusyWait; want < 4*maxBusyWait; want *= 2 {
			due := min(want, maxBusyWait)
			a := p.expectData(1)
			gap := a.At - last.At
			p.Check(gap >= due*9/10 && (!p.Virtual || gap <= due*13/10), fmt.Sprintf("a retransmission of packet 1 after %v", due), "after %v", gap)
			p.sendBusy()
			last = a
		}
		p.ExpectNoCompletion()
	}),
}, {
	ID: "dg/busy/sender-does-not-give-up", Cite: cite("7.4", "dg/busy/2"), Labels: []string{conformance.Slow},
	Title:   "A flow does not fail while a busy peer responds, and resumes after a window",
	Sends:   "Acks with window 0 for 12 s, then an Ack for the Send",
	Expects: "no failure, then a success",
	Defects: []string{"BusyHammers"}, Run: onPeer(func(p *peer) {
		p.postInFlow(p.sendWR(1, 0, 8))
		for until := p.Now() + giveUpTimeout + 2*time.Second; p.Now() < until; {
			p.sendBusy()
			p.expectData(1)
			p.ExpectNoCompletion()
		}
		p.send(p.ack(1))
		p.expectData(1)
		p.ackAndComplete(1)
	}),
}, {
	ID: "dg/busy/told-to-go-on", Cite: cite("7.4", "dg/busy/3"), Level: conformance.Should,
	Title:   "When a receive is posted, a waiting peer gets an Ack with a window",
	Sends:   "a Send to a queue pair without receives, which then gets one; the Send again",
	Expects: "an Ack with window 0, one with a window, and a receive",
	Defects: []string{"NoResume"}, Run: onSetup(setup{}, func(p *peer) { p.expectBusyPeersServed(p) }),
}, {
	ID: "dg/busy/told-to-go-on-in-turn", Cite: cite("7.4", "dg/busy/3"), Level: conformance.Should,
	Title:   "As many waiting peers as there are receives get an Ack with a window, in the order of waiting",
	Sends:   "Sends of three peers to a queue pair without receives, which gets one after the other",
	Expects: "with each receive an Ack with a window for one peer, in the order in which they came",
	Defects: []string{"NoResume"},
	Run:     onSetup(setup{}, func(p *peer) { p.expectBusyPeersServed(p, p.peer(1), p.peer(2)) }),
}, {
	ID: "dg/busy/writes-are-not-held-up", Cite: cite("7.4", "dg/busy/4"),
	Title:   "Without receives Writes and Read Requests are executed, unless they follow a waiting Send",
	Sends:   "a Write and a Read Request without a receive; then a Send, and a Write after it",
	Expects: "Acks and a Read Response; a window of 0 for the Send, and nothing for the Write after it",
	Defects: []string{"BusyHoldsWrites"}, Run: onFlow(setup{}, func(p *peer) {
		p.expectDelivered(p.writeToTarget(0, data(8)))
		p.ExpectBytes(p.targetMem, 0, data(8))
		p.targetMem.Snapshot()
		p.send(p.nextDataPacket(iwarp.ReadRequest(1, iwarp.At(peerSTag, peerTO), 8, p.targetAddr(0))).AckNow())
		a := p.mustNextData("a Read Response")
		p.checkPacket(iwarp.AnyPacket().With(iwarp.ReadResponse(peerSTag, peerTO, data(8))), a)
		p.fromDeviceFlow.epoch = *a.Data.Epoch
		if a.Data.Start != nil && *a.Data.Start.Proof == 0 {
			p.challenge(peerCookie)
		}
		p.ackAll()
		p.pending = nil
		waiting := p.toDevice.next
		p.send(p.nextDataPacket(iwarp.Send(1, data(8))).AckNow(), p.nextDataPacket(p.writeToTarget(8, data(8))).AckNow())
		p.syncDevice()
		for _, a := range p.drain(0) {
			p.Check(a.Ack == nil || int32(*a.Ack.Next-waiting) <= 0, "no Ack for a waiting packet", "%v", a.Packet)
		}
		p.ExpectUntouched(p.targetMem)
	}),
}})

// sendBusy acknowledges packet 0 with a window of 0: the peer has no receive for packet 1.
func (p *peer) sendBusy() { p.send(p.ack(1).Window(0)) }

// expectBusyPeersServed makes peers wait for receives, and fails the case unless each gets an Ack
// with a window when a receive is posted for it.
func (p *peer) expectBusyPeersServed(peers ...*peer) {
	for _, busy := range peers {
		busy.openFlow(zeroLengthWrite())
	}
	var sends []iwarp.Packet
	for _, busy := range peers {
		s := busy.nextDataPacket(iwarp.Send(1, data(8))).AckNow()
		sends = append(sends, s)
		busy.send(s)
		busy.expect(iwarp.RDAck(busy.toDevice.epoch, 1).Window(0))
	}
	for i, busy := range peers {
		p.PostRecv(p.qp, uint64(i+1), p.localMem.SGE(i*p.recvLen, p.recvLen))
		a := busy.expect(iwarp.RDAck(busy.toDevice.epoch, 1))
		p.Check(*a.Ack.Window > 0, "an Ack with a window", "%v", a.Packet)
		p.expectSilence(busySilence)
		busy.send(sends[i])
		p.expectRecv(uint64(i+1), data(8))
		busy.expectAck(2)
	}
}
