package dgiwarp

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
)

// Limits of delayed Acks: their delay, and the packets per Ack.
const (
	ackDelay = 100 * time.Microsecond
	ackEvery = 32
	// flowWindow is the maximum number of packets in flight.
	flowWindow = 256
)

var ackReceiverCases = overRD.Cases([]conformance.Case{{
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
		send := func(seq uint32) {
			p.send(p.dataPacket(seq, iwarp.Send(seq, data(int(8*seq)))))
		}
		for _, t := range []struct {
			seq, next uint32
			after     []uint32
		}{
			{2, 1, []uint32{2}}, {3, 1, []uint32{2, 3}}, {5, 1, []uint32{2, 3, 5}}, {1, 4, []uint32{5}}, {4, 6, nil},
		} {
			send(t.seq)
			p.expect(iwarp.RDAck(p.toDevice.epoch, t.next).SACK(iwarp.SACKOf(t.next, t.after...)...))
		}
		for seq := range 5 {
			p.expectRecv(uint64(seq+1), data(8*(seq+1)))
		}
	}),
}, {
	ID: "dg/ack/beyond-the-window-is-dropped", Cite: cite("7.2", "dg/ack/2"),
	Title:   "A packet 256 or more after the oldest missing one is dropped, and not acknowledged",
	Sends:   "packets 256, 257 and 1000 further than the next, then the next",
	Expects: "no Ack for any of them, and one receive",
	Defects: []string{"BeyondWindowTaken"}, Run: onFlow(setup{receives: 4}, func(p *peer) {
		far := []uint32{p.toDevice.next + flowWindow, p.toDevice.next + flowWindow + 1, p.toDevice.next + 1000}
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
		p.checkPacket(iwarp.RDAck(p.toDevice.epoch, 2).SACK(), acks[len(acks)-1])
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
			p.expectAckWithin(ackDelay/2, p.toDevice.next, pkt)
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
			p.expectAckWithin(ackDelay, p.toDevice.next, pkt)
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
		for a.Ack == nil || *a.Ack.Next < p.toDevice.next {
			a = p.expect(iwarp.PacketOf(iwarp.KindRD))
			p.Check(a.Ack != nil && *a.Ack.Epoch == p.toDevice.epoch, "an Ack", "%v", a.Packet)
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
			told, answered := false, false
			for !told || !answered {
				a := p.expect(iwarp.PacketOf(iwarp.KindRD))
				if a.Data != nil {
					answered = true
					p.trackData(a)
				}
				if a.Ack != nil {
					told = true
					p.checkPacket(iwarp.RDAck(p.toDevice.epoch, p.toDevice.next).SACK(), a)
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
		p.expect(iwarp.RDAck(p.toDevice.epoch, 4).Echo(0xfffffff0))
		for i := range uint32(2) {
			p.send(p.dataPacket(6+i, zeroLengthWrite()).Timestamp(1000 + i))
			p.expect(iwarp.RDAck(p.toDevice.epoch, 4).Echo(1000 + i))
		}
	}),
}})

// expectAckWithin fails the case unless a packet causes an Ack for all packets before next. In
// virtual time it also checks the delay.
func (p *peer) expectAckWithin(within time.Duration, next uint32, pkt iwarp.Packet) {
	begun := p.Now()
	p.send(pkt)
	a := p.expect(iwarp.RDAck(p.toDevice.epoch, next))
	took := a.At - begun
	p.Check(!p.Virtual || took <= within+roundTrip, fmt.Sprintf("an Ack within %v", within), "after %v", took)
}

// roundTrip is an upper bound of the round-trip time in virtual time.
const roundTrip = 20 * time.Microsecond
