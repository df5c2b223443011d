package dgiwarp

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
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
			p.expect(iwarp.RDAck(p.toDeviceFlow.epoch, 1).SACK().Window(0))
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
	Sends:   "repeated Acks with window 0 for a Send, then one with a window; one with window 0 after two timeouts of another peer's flow",
	Expects: "retransmissions of the oldest packet of four, at doubling intervals; after the window, at the timeout; one of the first packet after 1 ms",
	Defects: []string{"BusyHammers", "BusyAfterTimeouts", "TimeoutAfterBusy"}, Run: onPeer(func(p *peer) {
		p.establishDeviceFlow()
		p.PostSend(p.qp, p.sendWR(1, 0, 8), p.sendWR(2, 0, 8), p.sendWR(3, 0, 8), p.sendWR(4, 0, 8))
		p.expectDataRange(1, 3)
		last := p.expectData(4)
		p.sendBusy()
		if !p.Virtual { // a timeout retransmission may have crossed with it
			p.syncDevice()
			for _, a := range p.drainArrived() {
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
		if p.Virtual { // the timeout of a first packet is longer than the first interval
			p.send(p.ack(1))
			p.expectDataRange(1, 3)
			gap := p.retransmitDelay(p.expectData(4))
			p.Check(gap < firstTimeout, "a retransmission at a timeout of less than 10 ms", "after %v", gap)
			other := p.peer(1)
			other.acceptFlowOf(other.sendWR(5, 0, 8))
			other.expectData(0)
			again := other.expectData(0)
			other.send(other.ack(0).Window(0))
			gap = other.expectData(0).At - again.At
			p.Check(gap >= firstBusyWait*9/10 && gap <= firstBusyWait*13/10, fmt.Sprintf("a retransmission of the first packet after %v", firstBusyWait), "after %v", gap)
		}
		p.ExpectNoCompletion()
	}),
}, {
	ID: "dg/busy/timeout-after-a-window", Cite: cite("7.4", "dg/loss/2", "dg/busy/2"),
	Title:   "After a window the oldest packet is retransmitted at its timeout, not after the interval of a busy peer",
	Sends:   "Acks with window 0 for a Send and for its retransmissions, but for the last, which is followed by an Ack with a window",
	Expects: "a retransmission in less than 10 ms",
	Defects: []string{"WindowKeepsBusyTimer"}, Run: onPeer(func(p *peer) {
		p.postInFlow(p.sendWR(1, 0, 8))
		for wait := firstBusyWait; wait < 2*maxBusyWait; wait *= 2 {
			p.sendBusy()
			p.expectData(1)
		}
		begun := p.Now()
		p.send(p.ack(1))
		took := p.expectData(1).At - begun
		p.Check(!p.Virtual || took < firstTimeout, "a retransmission in less than 10 ms", "after %v", took)
		p.ackAndComplete(1)
	}),
}, {
	ID: "dg/busy/sender-does-not-give-up", Cite: cite("7.4", "dg/busy/2"), Labels: []string{conformance.Slow},
	Title:   "A flow does not fail while a busy peer responds, and resumes after a window",
	Sends:   "Acks with window 0 for 25 s, then an Ack for the Send",
	Expects: "no failure, then a success",
	Defects: []string{"BusyHammers"}, Run: onPeer(func(p *peer) {
		p.postInFlow(p.sendWR(1, 0, 8))
		for until := p.Now() + 5*giveUpTimeout/2; p.Now() < until; {
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
	Sends:   "Sends of two peers to a queue pair without receives, which then gets one after the other; the Sends again",
	Expects: "Acks with window 0, one with a window for each receive, and the receives",
	Defects: []string{"NoResume"}, Run: onSetup(setup{}, func(p *peer) { p.expectBusyPeersServed(p, p.peer(1)) }),
}, {
	ID: "dg/busy/window-of-one-is-not-busy", Cite: cite("7.4", "dg/busy/2", "dg/loss/3"),
	Title:   "A window of 1 does not say that the receiver is busy: a timeout retransmits all that was sent",
	Sends:   "an Ack with window 1 for the first of three Sends",
	Expects: "retransmissions of both others",
	Defects: []string{"WindowOfOneIsBusy"}, Run: onPeer(func(p *peer) {
		p.postInFlow(p.sendWR(1, 0, 8), p.sendWR(2, 0, 8), p.sendWR(3, 0, 8))
		p.send(p.ack(2).Window(1))
		p.ExpectCompletion(1, verbs.WCSuccess)
		p.expectData(2)
		p.expectData(3)
	}),
}, {
	ID: "dg/busy/stored-send-gets-its-receive", Cite: cite("7.4", "dg/busy/1", "dg/ack/3"), Level: conformance.Should,
	Title:   "A Send that was acknowledged behind a gap gets the next receive, without another packet",
	Sends:   "two Sends in the wrong order to a queue pair with one receive, which then gets another",
	Expects: "a receive of each",
	Defects: []string{"StoredSendForgotten"}, Run: onFlow(setup{receives: 1}, func(p *peer) {
		p.storeSend()
		p.PostRecv(p.qp, 2, p.localMem.SGE(p.recvLen, p.recvLen))
		p.expectRecv(2, data(16))
	}),
}, {
	ID: "dg/busy/told-to-go-on-in-turn", Cite: cite("7.4", "dg/busy/3"), Level: conformance.Should,
	Title:   "As many waiting peers as there are receives get an Ack with a window, in the order of waiting",
	Sends:   "Sends of three peers to a queue pair without receives, which gets one after the other; before, a Send to another queue pair, which gets a receive at last",
	Expects: "with each receive an Ack with a window for one peer of its queue pair, in the order in which they came",
	Defects: []string{"NoResume", "ResumesOthers", "EarlierPeersForgotten"}, Run: onSetup(setup{}, func(p *peer) {
		other := p.newQP(setup{}).peer(3)
		other.openFlow(zeroLengthWrite())
		other.sendWithoutReceive()
		p.expectBusyPeersServed(p, p.peer(1), p.peer(2))
		p.PostRecv(other.qp, 1, other.localMem.SGE(0, other.recvLen))
		a := other.expect(iwarp.RDAck(other.toDeviceFlow.epoch, 1))
		p.Check(*a.Ack.Window > 0, "an Ack with a window", "%v", a.Packet)
	}),
}, {
	ID: "dg/busy/told-to-go-on-instead-of-a-forgotten-peer", Cite: cite("7.4", "dg/busy/3", "dg/idle/2"), Level: conformance.Should,
	Labels:  []string{conformance.Slow},
	Title:   "A peer that was forgotten while it waited takes no other peer's turn",
	Sends:   "a Send to a queue pair without receives, and nothing more for a minute; a Send of another peer; then a receive is posted",
	Expects: "an Ack with a window for the second peer",
	Defects: []string{"ForgottenPeersWait"}, Run: onFlow(setup{}, func(p *peer) {
		p.sendWithoutReceive()
		p.Sleep(time.Minute)
		other := p.peer(1)
		other.openFlow(zeroLengthWrite())
		other.sendWithoutReceive()
		p.PostRecv(p.qp, 1, p.localMem.SGE(0, p.recvLen))
		a := other.expect(iwarp.RDAck(other.toDeviceFlow.epoch, 1))
		p.Check(*a.Ack.Window > 0, "an Ack with a window", "%v", a.Packet)
	}),
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
		waiting := p.toDeviceFlow.next
		p.send(p.nextDataPacket(iwarp.Send(1, data(8))).AckNow(), p.nextDataPacket(p.writeToTarget(8, data(8))).AckNow())
		p.syncDevice()
		for _, a := range p.drainArrived() {
			p.Check(a.Ack == nil || int32(*a.Ack.Next-waiting) <= 0, "no Ack for a waiting packet", "%v", a.Packet)
		}
		p.ExpectUntouched(p.targetMem)
	}),
}})

// sendBusy acknowledges packet 0 with a window of 0: the peer has no receive for packet 1.
func (p *peer) sendBusy() { p.send(p.ack(1).Window(0)) }

// sendWithoutReceive sends a Send as packet 1 to a queue pair without receives, and expects an Ack
// that does not include the Send and has window 0. It returns the packet, to be sent again.
func (p *peer) sendWithoutReceive() iwarp.Packet {
	s := p.nextDataPacket(iwarp.Send(1, data(8))).AckNow()
	p.send(s)
	p.expect(iwarp.RDAck(p.toDeviceFlow.epoch, 1).Window(0))
	return s
}

// storeSend sends two Sends in the wrong order to a queue pair with one receive, which the first of
// them takes. The second, of 16 octets, must have been acknowledged by a SACK, and waits for a
// receive. A device that does not keep packets behind a gap is not judged.
func (p *peer) storeSend() {
	first := p.nextDataPacket(iwarp.Send(1, data(8))).AckNow()
	p.send(p.nextDataPacket(iwarp.Send(2, data(16))).AckNow())
	a := p.mustNextPacket("an Ack")
	if a.Ack == nil || len(a.Ack.SACK) == 0 {
		rig.NotApplicable("the device does not keep packets behind a gap")
	}
	p.send(first)
	p.expectRecv(1, data(8))
	p.syncDevice()
	p.drainArrived()
}

// expectBusyPeersServed lets peers send to a queue pair without receives, which answers by Acks
// with window 0. It fails the case unless each receive that is then posted makes the device send
// one peer an Ack with a window, in the order of the peers, and that peer can send its message.
func (p *peer) expectBusyPeersServed(peers ...*peer) {
	for _, busy := range peers {
		busy.openFlow(zeroLengthWrite()) // a Write needs no receive
	}
	var sends []iwarp.Packet
	for _, busy := range peers {
		sends = append(sends, busy.sendWithoutReceive())
	}
	for i, busy := range peers {
		p.PostRecv(p.qp, uint64(i+1), p.localMem.SGE(i*p.recvLen, p.recvLen))
		a := busy.expect(iwarp.RDAck(busy.toDeviceFlow.epoch, 1)) // packet 1 is still to be sent
		p.Check(*a.Ack.Window > 0, "an Ack with a window", "%v", a.Packet)
		p.expectSilence(busySilence) // no Ack to the other peers
		busy.send(sends[i])
		p.expectRecv(uint64(i+1), data(8))
		busy.expectAck(2)
	}
}

// Sizes of the congestion window, in packets.
const (
	initialWindow = 16
	minWindow     = 4
	burst         = 32
	anyWindow     = 1 << 20 // for cases that do not check the window
)

// The ECN bits of the traffic class.
const (
	ecnMask = 3
	ect0    = 2
	ce      = 3
)

var congestionCases = conformance.Group{Setup: setupNarrowRD}.Cases([]conformance.Case{{
	ID: "dg/congestion/sixteen-at-first", Cite: cite("7.5", "dg/cc/1"),
	Title:   "At most 16 packets are in flight before the first Ack",
	Sends:   "a Challenge for a flow with much to send, and no Ack",
	Expects: "packets 0 to 15, and none after",
	Defects: []string{"NoWindow"}, Run: onSetup(setup{memLen: 1 << 20}, func(p *peer) {
		p.acceptFlowOf(p.wr(1, verbs.OpRDMAWrite, 0, 1<<20))
		p.expectInFlight(0, 1, initialWindow)
	}),
}, {
	ID: "dg/congestion/window-grows", Cite: cite("7.5", "dg/cc/1"),
	Title:   "The window grows by one for each acknowledged packet until the first loss",
	Sends:   "Acks for a whole window, three times",
	Expects: "more packets each time, and at most twice as many",
	Defects: []string{"NoWindow"}, Run: onSetup(setup{memLen: 1 << 20}, func(p *peer) {
		p.acceptFlowOf(p.wr(1, verbs.OpRDMAWrite, 0, 1<<20))
		n := p.expectInFlight(0, 1, anyWindow)
		for range 3 {
			oldest := p.fromDeviceFlow.next
			p.ackAll()
			n = p.expectInFlight(oldest, n+1, 2*n)
		}
	}),
}, {
	ID: "dg/congestion/loss-cuts-the-window", Cite: cite("7.5", "dg/cc/2"),
	Title:   "A loss reduces the window to seven tenths, and a timeout to 4",
	Sends:   "an Ack for all of a window but its first packet; an Ack after its retransmission; then none",
	Expects: "at most seven tenths of twice the window in flight; after the timeout at most 4 packets",
	Defects: []string{"NoWindow"}, Run: onSetup(setup{memLen: 1 << 20}, func(p *peer) {
		p.acceptFlowOf(p.wr(1, verbs.OpRDMAWrite, 0, 1<<20))
		p.expectInFlight(0, initialWindow, anyWindow)
		p.send(p.ack(0).SACK(1<<(initialWindow-1) - 1))
		p.expectRetransmission(0, minTimeout)
		const oldest = initialWindow
		p.send(p.ack(oldest))
		// The window is at most seven tenths of its size without the loss, whether the arrived
		// packets count before the loss or after it.
		p.expectInFlight(oldest, 1, 2*initialWindow*7/10)
		p.expectTimeoutRetransmission(oldest)
	}),
}, {
	ID: "dg/congestion/mark-cuts-the-window", Cite: cite("7.5", "dg/cc/2", "dg/cc/3"),
	Title:   "An Ack with the marked flag reduces the window to seven tenths",
	Sends:   "an Ack for a whole window with the marked flag",
	Expects: "at most seven tenths of twice the window in flight",
	Defects: []string{"MarksIgnored"}, Run: onSetup(setup{memLen: 1 << 20}, func(p *peer) {
		p.acceptFlowOf(p.wr(1, verbs.OpRDMAWrite, 0, 1<<20))
		n := p.expectInFlight(0, 1, anyWindow)
		oldest := p.fromDeviceFlow.next
		p.send(p.ack(oldest).EditHeader(func(h *iwarp.PacketHeader) { h.Marked = new(true) }))
		p.expectInFlight(oldest, 1, 2*n*7/10)
	}),
}, {
	ID: "dg/congestion/data-is-ecn-capable", Cite: cite("7.5", "dg/cc/3"), Level: conformance.Should, Setup: setupRD,
	Title:   "RD data packets are sent as ECN-capable",
	Sends:   "a Challenge, Acks, and none for the last Send, which is retransmitted",
	Expects: "ECT(0) in all packets with data",
	Defects: []string{"MarksIgnored"}, Run: onPeer(func(p *peer) {
		capable := func(a arrival) {
			p.Check(iwarp.Val(a.IP.TClass)&ecnMask == ect0, "ECT(0)", "%d in %v", iwarp.Val(a.IP.TClass)&ecnMask, a.Packet)
		}
		capable(p.acceptFlowOf(p.sendWR(1, 0, 8)))
		p.ackAll()
		p.PostSend(p.qp, p.sendWR(2, 0, 8))
		capable(p.expectData(1))
		capable(p.expectData(1))
	}),
}, {
	ID: "dg/congestion/marks-are-echoed", Cite: cite("7.5", "dg/cc/3"), Level: conformance.Should, Setup: setupRD,
	Title:   "A packet with CE sets the marked flag of the next Ack",
	Sends:   "packets with ECT(0), with CE, and with ECT(0) again",
	Expects: "Acks without, with and without the marked flag",
	Defects: []string{"MarksIgnored"}, Run: onFlow(setup{}, func(p *peer) {
		for _, ecn := range []uint8{ect0, ce, ect0, ce, ce} {
			p.route.tclass = ecn
			a := p.expectDelivered(zeroLengthWrite())
			p.Check(*a.Header.Marked == (ecn == ce), fmt.Sprintf("the marked flag %v", ecn == ce), "%v", *a.Header.Marked)
		}
	}),
}, {
	ID: "dg/congestion/packets-are-spread", Cite: cite("7.5", "dg/cc/4"), Level: conformance.Should,
	Title:   "Packets are paced at 5/4 of the window over the round trip: at most 32 are sent at once",
	Sends:   "Acks for whole windows, which tell of a round trip of 20 ms",
	Expects: "at most 32 packets at the same time, and the others of a window spread over 16 ms",
	Defects: []string{"NoPacing"}, Run: onSetup(setup{memLen: 1 << 20}, func(p *peer) {
		if !p.Virtual {
			rig.NotApplicable("bursts can be observed in virtual time only")
		}
		p.acceptFlowOf(p.wr(100, verbs.OpRDMAWrite, 0, 1<<20))
		for p.fromDeviceFlow.next < 400 {
			var all []arrival
			for a, ok := p.nextData(slowRoundTrip / 2); ok; a, ok = p.nextData(slowRoundTrip / 2) {
				all = append(all, a)
			}
			gap := slowRoundTrip * 4 / 5 / time.Duration(max(len(all), initialWindow))
			for i := range all {
				for k := i + burst; k < len(all); k++ {
					took := all[k].At - all[i].At
					p.Check(took > time.Duration(k-i-burst)*gap*9/10, fmt.Sprintf("at most 32 packets at once, and one each %v", gap), "%d in %v", k-i+1, took)
				}
			}
			took := all[len(all)-1].At - all[0].At
			p.Check(took <= slowRoundTrip*9/10, "a window in the time of a round trip", "%d packets in %v", len(all), took)
			p.send(p.ack(p.fromDeviceFlow.next).Echo(uint32(int64(p.fromDeviceFlow.lastTimestamp) + int64((p.Now()-all[len(all)-1].At-slowRoundTrip)/time.Microsecond))))
		}
	}),
}})

// expectInFlight fails the case unless the device has least to most packets in flight, from
// sequence number oldest on, while the peer sends no Ack. It returns their number. It waits for
// each packet less than the minimum retransmission timeout, but longer for the first.
func (p *peer) expectInFlight(oldest uint32, least, most int) int {
	more := true
	if p.fromDeviceFlow.next == oldest {
		_, more = p.nextData(p.ResponseTimeout()) // the first may be delayed
	}
	for more {
		_, more = p.nextData(minTimeout * 9 / 10)
	}
	n := int(p.fromDeviceFlow.next - oldest)
	p.Check(n <= most, fmt.Sprintf("at most %d outstanding packets", most), "%d, from %d on", n, oldest)
	// In real time the Acks that the peer sent before may have arrived late: the device takes that
	// for a loss, and reduces its window.
	p.Check(n >= least || !p.Virtual && n > 0, fmt.Sprintf("at least %d outstanding packets", least), "%d, from %d on", n, oldest)
	return n
}

// expectTimeoutRetransmission fails the case unless the device, at a timeout, retransmits packet
// oldest and then at most the minWindow-1 packets after it.
func (p *peer) expectTimeoutRetransmission(oldest uint32) {
	want := fmt.Sprintf("a retransmission of packet %d at a timeout", oldest)
	for *p.mustNextData(want).Data.Seq != oldest { // a packet that was in flight
	}
	n := 1
	for {
		a, ok := p.nextData(minTimeout * 9 / 10) // before the next timeout
		if !ok {
			break
		}
		n++
		p.Check(int(*a.Data.Seq-oldest) < minWindow, fmt.Sprintf("at most %d packets at a timeout", minWindow), "packet %d when %d is the oldest", *a.Data.Seq, oldest)
	}
	p.Check(n <= minWindow, fmt.Sprintf("at most %d packets at a timeout", minWindow), "%d", n)
}
