package dgiwarp

import (
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

const (
	ackDelay   = 100 * time.Microsecond // maximum delay of an Ack
	ackEvery   = 32                     // maximum number of packets per Ack
	flowWindow = 256                    // maximum number of packets in flight
	roundTrip  = 20 * time.Microsecond  // upper bound of the round-trip time in virtual time
	keptLimit  = 17 << 20               // a little more octets than are kept behind gaps
)

// expectAckWithin sends pkt and expects an Ack of all packets before next. In virtual time, the Ack
// must arrive within maxDelay plus the round trip.
func (p *peer) expectAckWithin(maxDelay time.Duration, next uint32, pkt iwarp.Packet) {
	begun := p.Now()
	p.send(pkt)
	a := p.expect(iwarp.RDAck(p.toDeviceFlow.epoch, next))
	took := a.At - begun
	p.Check(!p.Virtual || took <= maxDelay+roundTrip, fmt.Sprintf("an Ack within %v", maxDelay), "after %v", took)
}

// setupNarrowRD is RD over a path MTU of 1500.
var setupNarrowRD = conformance.Setup{Family: 6, MTU: 1500, Reliable: true}

var ackCases = overRD.Cases([]conformance.Case{{
	ID: "dg/ack/in-order-and-once", Cite: cite("7.2", "dg/ack/1"),
	Title:   "Segments are delivered in order of sequence number, each once",
	Sends:   "packets 3, 1, 1, 2, 3, 2 and 4 of a flow, each with a Send",
	Expects: "four receives, in order of sequence number",
	Defects: []string{"DeliversAsTheyCome"}, Run: onFlow(setup{receives: 6}, func(p *peer) {
		for _, seq := range []uint32{3, 1, 1, 2, 3, 2, 4} {
			p.send(p.dataPacket(seq, iwarp.Send(seq, data(int(8*seq)))))
		}
		for seq := range 4 {
			p.expectRecv(uint64(seq+1), data(8*(seq+1)))
		}
		p.expectNoCompletionYet()
	}),
}, {
	ID: "dg/ack/kept-behind-a-gap", Cite: cite("7.2", "dg/ack/3"), Level: conformance.Should,
	Title:   "Packets after a gap are kept, and acknowledged by SACK",
	Sends:   "packets 2, 3 and 5, then 1, then 4",
	Expects: "Acks with a SACK for the packets after the gap, and receives of 1 to 3, then of 4 and 5",
	Defects: []string{"GapsForgotten"}, Run: onFlow(setup{receives: 6}, func(p *peer) {
		send := func(seq uint32) { p.send(p.dataPacket(seq, iwarp.Send(seq, data(int(8*seq))))) }
		for _, t := range []struct {
			seq, next uint32
			after     []uint32
		}{
			{2, 1, []uint32{2}}, {3, 1, []uint32{2, 3}}, {5, 1, []uint32{2, 3, 5}}, {1, 4, []uint32{5}}, {4, 6, nil},
		} {
			send(t.seq)
			p.expect(iwarp.RDAck(p.toDeviceFlow.epoch, t.next).SACK(iwarp.SACKOf(t.next, t.after...)...))
		}
		for seq := range 5 {
			p.expectRecv(uint64(seq+1), data(8*(seq+1)))
		}
	}),
}, {
	ID: "dg/ack/kept-behind-many-gaps", Cite: cite("7.2", "dg/ack/3"), Level: conformance.Should, Setup: conformance.Setup{Family: 6, MTU: 9000, Reliable: true},
	Title:   "Packets of all lengths after a gap are kept, again and again",
	Sends:   "Writes of many lengths, each before the packet that precedes it: more than there are of the longest packets in 16 MiB",
	Expects: "a SACK of each, an Ack of both, and the data in memory",
	Defects: []string{"StoreLeaks"}, Run: onFlow(setup{memLen: 64 << 10}, func(p *peer) {
		lengths := slices.Concat([]int{64, 128, 255, 256, 511, 512, 513, 1024, 2048, 4096, 8192, 8500}, slices.Repeat([]int{600}, keptLimit/p.MTU))
		for _, n := range lengths {
			seq := p.toDeviceFlow.next
			n -= taggedLen // so that the segment has this length
			p.send(p.dataPacket(seq+1, p.writeToTarget(0, data(n))))
			p.expect(iwarp.RDAck(p.toDeviceFlow.epoch, seq).SACK(1))
			p.toDeviceFlow.next += 2
			p.send(p.dataPacket(seq, zeroLengthWrite()))
			p.expectAck(seq + 2)
		}
		p.ExpectBytes(p.targetMem, 0, data(600-taggedLen))
	}),
}, {
	ID: "dg/ack/beyond-the-window-is-dropped", Cite: cite("7.2", "dg/ack/2"),
	Title:   "A packet 256 or more after the oldest missing one is dropped, and not acknowledged",
	Sends:   "packets 256, 257 and 1000 further than the next, then the next",
	Expects: "no Ack for any of them, and one receive",
	Defects: []string{"BeyondWindowTaken", "WindowOneTooLong"}, Run: onFlow(setup{receives: 4}, func(p *peer) {
		far := []uint32{p.toDeviceFlow.next + flowWindow, p.toDeviceFlow.next + flowWindow + 1, p.toDeviceFlow.next + 1000}
		for _, seq := range far {
			p.send(p.dataPacket(seq, iwarp.Send(2, data(16))).AckNow())
		}
		p.send(p.nextDataPacket(iwarp.Send(1, data(8))).AckNow())
		acks := p.drain(silencePeriod)
		p.Check(len(acks) > 0, "an Ack", "none")
		for _, a := range acks {
			p.Check(a.Ack != nil, "Acks", "%v", a.Packet)
			for _, seq := range far {
				p.Check(!a.Ack.Arrived(seq), fmt.Sprintf("packet %d is not acknowledged", seq), "%v", a.Packet)
			}
		}
		p.checkPacket(iwarp.RDAck(p.toDeviceFlow.epoch, 2).SACK(), acks[len(acks)-1])
		p.expectRecv(1, data(8))
		p.ExpectNoCompletion()
	}),
}, {
	ID: "dg/ack/at-once-when-out-of-order", Cite: cite("7.2", "dg/ack/4"),
	Title:   "A packet out of order, a duplicate and one that closes a gap are acknowledged at once",
	Sends:   "packet 2, packet 2 again, packet 1, and packet 1 again, without ack-now",
	Expects: "an immediate Ack for each",
	Defects: []string{"AcksLazy"}, Run: onFlow(setup{}, func(p *peer) {
		for _, t := range []struct{ seq, next uint32 }{{2, 1}, {2, 1}, {1, 3}, {1, 3}} {
			p.expectAckWithin(ackDelay/2, t.next, p.dataPacket(t.seq, zeroLengthWrite()))
		}
	}),
}, {
	ID: "dg/ack/at-once-when-asked", Cite: cite("7.2", "dg/ack/4"),
	Title:   "A packet with ack-now is acknowledged at once",
	Sends:   "packets in order with ack-now",
	Expects: "an Ack for each, at once",
	Defects: []string{"AcksLazy"}, Run: onFlow(setup{}, func(p *peer) {
		for range 4 {
			pkt := p.nextDataPacket(zeroLengthWrite()).AckNow()
			p.expectAckWithin(ackDelay/2, p.toDeviceFlow.next, pkt)
		}
	}),
}, {
	ID: "dg/ack/at-once-when-nobody-answers", Cite: cite("7.2", "dg/ack/4", "dg/ack/5"),
	Title:   "A packet with ack-now is acknowledged at once if the program, which used to answer, no longer does",
	Sends:   "Sends, to which the application replies; then packets with ack-now, to which it does not",
	Expects: "an Ack for the first packet without a reply, and Acks at once for the others",
	Defects: []string{"AcksAwaitRepliesForever"}, Run: onFlow(setup{receives: 4}, func(p *peer) {
		p.establishDeviceFlow()
		for id := range uint64(4) {
			p.send(p.nextDataPacket(iwarp.Send(uint32(id+1), data(8))).AckNow())
			p.expectRecv(id+1, data(8))
			p.PostSend(p.qp, p.sendWR(100+id, 0, 8))
			p.expectData(uint32(id + 1))
			p.ackAndComplete(100 + id)
			p.drainArrived()
		}
		for i := range 4 {
			pkt := p.nextDataPacket(zeroLengthWrite()).AckNow()
			if i == 0 {
				p.send(pkt)
				p.expectAck(p.toDeviceFlow.next)
				continue
			}
			p.expectAckWithin(ackDelay/2, p.toDeviceFlow.next, pkt)
		}
	}),
}, {
	ID: "dg/ack/within-100-microseconds", Cite: cite("7.2", "dg/ack/4"),
	Title:   "A packet in order is acknowledged within 100 µs",
	Sends:   "packets in order without ack-now, one after the other",
	Expects: "an Ack for each within 100 µs",
	Defects: []string{"AcksLazy"}, Run: onFlow(setup{}, func(p *peer) {
		for range 4 {
			pkt := p.nextDataPacket(zeroLengthWrite())
			p.expectAckWithin(ackDelay, p.toDeviceFlow.next, pkt)
		}
	}),
}, {
	ID: "dg/ack/every-32nd-at-the-latest", Cite: cite("7.2", "dg/ack/4"),
	Title:   "Every 32nd packet is acknowledged at once",
	Sends:   "32 packets in order at the same time without ack-now",
	Expects: "an Ack for all of them at once, or for fewer before",
	Defects: []string{"AcksLazy"}, Run: onFlow(setup{}, func(p *peer) {
		begun := p.Now()
		for range ackEvery {
			p.send(p.nextDataPacket(zeroLengthWrite()))
		}
		sent := p.Now() - begun
		var a arrival
		for a.Ack == nil || *a.Ack.Next < p.toDeviceFlow.next {
			a = p.expect(iwarp.PacketOf(iwarp.KindRD))
			p.Check(a.Ack != nil && *a.Ack.Epoch == p.toDeviceFlow.epoch, "an Ack", "%v", a.Packet)
		}
		p.Check(!p.Virtual || a.At-begun < sent+ackDelay/2, "an Ack for 32 packets at once", "after %v", a.At-begun)
	}),
}, {
	ID: "dg/ack/riding-on-data-is-true", Cite: cite("7.2", "dg/ack/5"), Level: conformance.May,
	Title:   "A piggybacked acknowledgement covers all received packets",
	Sends:   "Sends, to each of which the application replies with a Send",
	Expects: "Acks for all earlier packets, alone or in data packets",
	Defects: []string{"AckRidesStale"}, Run: onFlow(setup{receives: 16}, func(p *peer) {
		p.establishDeviceFlow()
		for i := range 16 {
			p.send(p.nextDataPacket(iwarp.Send(uint32(i+1), data(8))))
			p.expectRecv(uint64(i+1), data(8))
			p.PostSend(p.qp, p.sendWR(uint64(100+i), 0, 8))
			acked, replied := false, false
			for !acked || !replied {
				a := p.expect(iwarp.PacketOf(iwarp.KindRD))
				if a.Data != nil {
					replied = true
					p.trackData(a)
				}
				if a.Ack != nil {
					acked = true
					p.checkPacket(iwarp.RDAck(p.toDeviceFlow.epoch, p.toDeviceFlow.next).SACK(), a)
				}
			}
			p.ackAndComplete(uint64(100 + i))
		}
	}),
}, {
	ID: "dg/ack/echo-of-what-made-it-necessary", Cite: cite("7.3", "dg/loss/1"),
	Title:   "The echo of an Ack is the timestamp of the packet that caused it: the first since the last Ack, or the one out of order",
	Sends:   "three packets in order at the same time, then two after a gap, with different timestamps",
	Expects: "an Ack with the timestamp of the first, and Acks with those of the two",
	Defects: []string{"EchoLatest"}, Run: onFlow(setup{}, func(p *peer) {
		for i := range uint32(3) {
			p.send(p.nextDataPacket(zeroLengthWrite()).Timestamp(0xfffffff0 + 7*i))
		}
		p.expect(iwarp.RDAck(p.toDeviceFlow.epoch, 4).Echo(0xfffffff0))
		for i := range uint32(2) {
			p.send(p.dataPacket(6+i, zeroLengthWrite()).Timestamp(1000 + i))
			p.expect(iwarp.RDAck(p.toDeviceFlow.epoch, 4).Echo(1000 + i))
		}
	}),
}, {
	ID: "dg/ack/at-most-256-under-way", Cite: cite("7.2", "dg/ack/2"), Setup: setupNarrowRD,
	Title:   "At most 256 packets of a flow are in flight, counted from the oldest unacknowledged one",
	Sends:   "Acks for each of 600 packets of a long Write, then none",
	Expects: "no packet 256 or more after the oldest unacknowledged one",
	Defects: []string{"NoWindow"}, Run: onSetup(setup{memLen: 1 << 20}, func(p *peer) {
		p.establishDeviceFlow()
		p.PostSend(p.qp, p.wr(1, verbs.OpRDMAWrite, 0, 1<<20), p.wr(2, verbs.OpRDMAWrite, 0, 1<<20))
		for p.fromDeviceFlow.next < 600 {
			oldest := p.fromDeviceFlow.next
			p.checkInWindow(oldest, p.mustNextData(fmt.Sprintf("packet %d", oldest)))
			p.ackAll()
		}
		oldest := p.fromDeviceFlow.next
		for until := p.Now() + 100*time.Millisecond; p.Now() < until; {
			if a, ok := p.nextData(until - p.Now()); ok {
				p.checkInWindow(oldest, a)
			}
		}
	}),
}, {
	ID: "dg/ack/asks-when-it-will-wait", Cite: cite("7.2", "dg/ack/6"), Setup: setupNarrowRD,
	Title:   "A sender sets ack-now on its last packet, on the last of the window, and on retransmissions",
	Sends:   "Acks; then none for several packets of a long Write",
	Expects: "ack-now on the only packet, on the last of three, on the last before the window ends, and on retransmissions",
	Defects: []string{"NeverAsksNow"}, Run: onSetup(setup{memLen: 1 << 20}, func(p *peer) {
		asks := func(a arrival, why string) { p.Check(*a.Header.AckNow, "ack-now on "+why, "%v", a.Packet) }
		asks(p.acceptFlowOf(p.sendWR(1, 0, 8)), "the only packet")
		p.ackAndComplete(1)
		p.PostSend(p.qp, p.sendWR(2, 0, 8), p.sendWR(3, 0, 8), p.sendWR(4, 0, 8))
		p.expectDataRange(1, 2)
		asks(p.expectData(3), "the last of three")
		p.ackAll()
		p.PostSend(p.qp, p.wr(5, verbs.OpRDMAWrite, 0, 1<<20))
		var last arrival
		for {
			a := p.mustNextData("retransmissions")
			if last.Data != nil && *a.Data.Seq <= *last.Data.Seq {
				asks(last, "the last before the window ends")
				asks(a, "retransmissions")
				return
			}
			last = a
		}
	}),
}, {
	ID: "dg/ack/for-what-was-never-sent", Cite: cite("7.2", "dg/ack/7"),
	Title:   "An Ack for packets that were never sent is ignored as a whole",
	Sends:   "Acks whose next is 1, 1000 and 2^31 beyond the last packet, then a correct one",
	Expects: "no completion, then one",
	Defects: []string{"GhostAckTaken"}, Run: onPeer(func(p *peer) {
		p.postInFlow(p.sendWR(1, 0, 8), p.sendWR(2, 0, 8))
		for _, beyond := range []uint32{1, 1000, 1 << 31, 0xfffffff0} {
			p.send(p.ack(p.fromDeviceFlow.next + beyond))
		}
		p.expectNoCompletionYet()
		p.ackAndComplete(1, 2)
	}),
}, {
	ID: "dg/ack/sack-for-what-was-never-sent", Cite: cite("7.2", "dg/ack/7"),
	Title:   "An Ack with a SACK for packets that were never sent is ignored as a whole",
	Sends:   "Acks with a correct next and a SACK for packets that were not sent, then one without",
	Expects: "no completion, then those of the last Ack",
	Defects: []string{"GhostAckTaken"}, Run: onPeer(func(p *peer) {
		p.postInFlow(p.sendWR(1, 0, 8), p.sendWR(2, 0, 8))
		p.send(p.ack(2).SACK(iwarp.SACKOf(2, 4)...), p.ack(2).SACK(iwarp.SACKOf(2, 3)...), p.ack(2).SACK(iwarp.SACKOf(2, 200)...))
		p.expectNoCompletionYet()
		p.ackAndComplete(1, 2)
	}),
}, {
	ID: "dg/ack/completes-what-was-sent", Cite: cite("7.2", "dg/ack/8", "dg/verbs/1"), Setup: setupNarrowRD,
	Title:   "A request completes when all of its packets have been acknowledged",
	Sends:   "Acks for each packet of a Send in turn, the last but one by SACK",
	Expects: "no completion before the last",
	Defects: []string{"RDCompletesAtOnce"}, Run: onPeer(func(p *peer) {
		p.establishDeviceFlow()
		p.PostSend(p.qp, p.sendWR(1, 0, 5000))
		p.expectDataRange(1, 4)
		p.expectNoCompletionYet()
		for _, ack := range []iwarp.Packet{p.ack(2), p.ack(2).SACK(iwarp.SACKOf(2, 4)...), p.ack(3).SACK(iwarp.SACKOf(3, 4)...)} {
			p.send(ack)
			p.expectNoCompletionYet()
		}
		p.send(p.ack(5))
		p.ExpectCompletion(1, verbs.WCSuccess)
	}),
}, {
	ID: "dg/ack/response-completes-no-request", Cite: cite("7.2", "dg/ack/8"),
	Title:   "The Ack of a Read Response completes none of the requests after it, however many they are",
	Sends:   "a Read Request, an Ack for its response while the device has 70 Sends posted, then Acks for each of those",
	Expects: "no completion for the first Ack, then one for each",
	Defects: []string{"ResponsesForgotten"}, Run: onFlow(setup{}, func(p *peer) {
		const sends = 70
		p.establishDeviceFlow()
		p.send(p.nextDataPacket(iwarp.ReadRequest(1, iwarp.At(peerSTag, peerTO), 8, p.targetAddr(0))).AckNow())
		p.checkPacket(iwarp.AnyPacket().With(iwarp.Op(iwarp.OpReadResponse)), p.expectData(1))
		wrs := make([]verbs.SendWR, sends)
		for i := range wrs {
			wrs[i] = p.sendWR(uint64(i+1), 0, 8)
		}
		p.PostSend(p.qp, wrs...)
		p.send(p.ack(2))
		p.expectNoCompletionYet()
		for id := uint32(1); id <= sends; id++ {
			p.expectData(id + 1)
			p.send(p.ack(id + 2))
			p.ExpectCompletion(uint64(id), verbs.WCSuccess)
		}
	}),
}, {
	ID: "dg/ack/without-room-is-sent-alone", Cite: cite("7.2", "dg/ack/5", "dg/pkt/8"), Setup: setupNarrowRD,
	Title:   "An acknowledgement does not make a data packet longer than the path MTU",
	Sends:   "Read Requests for messages of several packets, at the start of the device's flow and later; a packet after a gap with an Ack for the response",
	Expects: "the responses, in packets of at most 1500 octets",
	Defects: []string{"AckMakesPacketTooLong"}, Run: onFlow(setup{memLen: 128 << 10}, func(p *peer) {
		// Every packet that a case receives is checked against the MTU.
		read := func(msn uint32, n int) {
			p.send(p.nextDataPacket(iwarp.ReadRequest(msn, iwarp.At(peerSTag, peerTO), uint32(n), p.targetAddr(0))))
		}
		const short, long = 5000, 60000
		read(1, short)
		first := p.recvStart()
		for got := len(first.Segment.Payload); got < short; {
			got += len(p.mustNextData("a Read Response").Segment.Payload)
		}
		p.ackAll()
		read(2, long)
		for got := 0; got < long; {
			a := p.mustNextData("a Read Response")
			if got += len(a.Segment.Payload); a.Header.AckNow != nil && *a.Header.AckNow {
				behindGap := p.dataPacket(p.toDeviceFlow.next+1, zeroLengthWrite())
				p.send(behindGap.Acking(p.fromDeviceFlow.epoch, p.fromDeviceFlow.next).Echo(p.fromDeviceFlow.lastTimestamp))
			}
		}
		p.ackAll()
		p.drainArrived()
	}),
}, {
	ID: "dg/ack/read-completes-when-answered", Cite: cite("7.2", "dg/ack/8"),
	Title:   "A Read completes after its response, not after the Ack of its request",
	Sends:   "an Ack for a Read Request, and the Read Response in two segments",
	Expects: "a completion after the second",
	Defects: []string{"RDCompletesAtOnce"}, Run: onFlow(setup{}, func(p *peer) {
		request := p.acceptFlowOf(p.wr(1, verbs.OpRDMARead, 0, 64))
		p.checkPacket(iwarp.AnyPacket().With(iwarp.Op(iwarp.OpReadRequest)), request)
		p.ackAll()
		p.expectNoCompletionYet()
		answer := iwarp.ReadResponseTo(*request.Segment, data(64)).Segments(taggedLen + 32)
		p.send(p.nextDataPacket(answer[0]))
		p.expectNoCompletionYet()
		p.send(p.nextDataPacket(answer[1]))
		p.ExpectCompletion(1, verbs.WCSuccess)
		p.ExpectBytes(p.localMem, 0, data(64))
	}),
}, {
	ID: "dg/ack/peers-do-not-wait-for-each-other", Cite: cite("7.2", "dg/ack/8"),
	Title:   "Requests to one destination complete in order, and do not wait for those to another",
	Sends:   "Acks of one of two peers only, later of the other",
	Expects: "completions of the requests to the one, in order, then of the others",
	Defects: []string{"PeersWait"}, Run: onPeer(func(p *peer) {
		other := p.peer(1)
		p.establishDeviceFlow()
		other.establishDeviceFlow()
		p.PostSend(p.qp, p.sendWR(1, 0, 8), other.sendWR(2, 0, 8), p.sendWR(3, 0, 8), other.sendWR(4, 0, 8))
		p.syncDevice() // both have arrived by then
		for _, a := range p.drainArrived() {
			if *a.Header.DestQP == other.qpn {
				other.trackData(a)
			} else {
				p.trackData(a)
			}
		}
		other.ackAndComplete(2, 4)
		p.ExpectNoCompletion()
		p.ackAndComplete(1, 3)
	}),
}, {
	ID: "dg/ack/window-of-the-receiver", Cite: cite("7.2", "dg/ack/9"), Setup: setupNarrowRD,
	Title:   "A sender sends no new packet beyond the window of the last Ack",
	Sends:   "Acks for all packets of a long Write, with windows of 5, 1, 9 and 2 packets",
	Expects: "as many packets after each Ack as its window, and no more",
	Defects: []string{"SmallWindowExceeded"}, Run: onSetup(setup{memLen: 64 << 10}, func(p *peer) {
		p.establishDeviceFlow()
		for i, window := range []uint16{5, 1, 9, 2} {
			oldest := p.fromDeviceFlow.next
			p.send(p.ack(oldest).Window(window))
			if i == 0 {
				p.syncDevice() // the device has received the Ack
				p.PostSend(p.qp, p.wr(1, verbs.OpRDMAWrite, 0, 64<<10))
			}
			p.expectInFlight(oldest, int(window), int(window))
		}
	}),
}})

// checkInWindow fails the case if a data packet is outside the window that begins with oldest.
func (p *peer) checkInWindow(oldest uint32, a arrival) {
	p.Check(int32(*a.Data.Seq-oldest) < flowWindow, fmt.Sprintf("at most %d outstanding packets", flowWindow),
		"packet %d while %d is the oldest unacknowledged one", *a.Data.Seq, oldest)
}
