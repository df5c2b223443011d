package dgiwarp

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// setupNarrowRD is RD over a path MTU of 1500.
var setupNarrowRD = conformance.Setup{Family: 6, MTU: 1500, Reliable: true}

var ackSenderCases = overRD.Cases([]conformance.Case{{
	ID: "dg/ack/at-most-256-under-way", Cite: cite("7.2", "dg/ack/2"), Setup: setupNarrowRD,
	Title:   "At most 256 packets of a flow are in flight, counted from the oldest unacknowledged one",
	Sends:   "Acks for each of 600 packets of a long Write, then none",
	Expects: "no packet 256 or more after the oldest unacknowledged one",
	Defects: []string{"NoWindow"}, Run: onSetup(setup{memLen: 1 << 20}, func(p *peer) {
		p.establishDeviceFlow()
		p.PostSend(p.qp, p.wr(1, verbs.OpRDMAWrite, 0, 1<<20), p.wr(2, verbs.OpRDMAWrite, 0, 1<<20))
		for p.fromDeviceFlow.next < 600 {
			p.expectDataInWindow(p.fromDeviceFlow.next)
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
			a, ok := p.nextData(p.ResponseTimeout())
			p.Check(ok, "retransmissions", "nothing in %v", p.ResponseTimeout())
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
		p.establishDeviceFlow()
		p.PostSend(p.qp, p.sendWR(1, 0, 8), p.sendWR(2, 0, 8))
		p.expectDataRange(1, 2)
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
		p.establishDeviceFlow()
		p.PostSend(p.qp, p.sendWR(1, 0, 8), p.sendWR(2, 0, 8))
		p.expectDataRange(1, 2)
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
		for _, a := range p.drain(0) {
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
}})

// expectDataInWindow receives the next data packet, and fails the case if it is outside the
// window that begins with oldest.
func (p *peer) expectDataInWindow(oldest uint32) {
	a, ok := p.nextData(p.ResponseTimeout())
	p.Check(ok, fmt.Sprintf("packet %d", oldest), "nothing in %v", p.ResponseTimeout())
	p.checkInWindow(oldest, a)
}

func (p *peer) checkInWindow(oldest uint32, a arrival) {
	p.Check(int32(*a.Data.Seq-oldest) < flowWindow, fmt.Sprintf("at most %d outstanding packets", flowWindow),
		"packet %d while %d is the oldest unacknowledged one", *a.Data.Seq, oldest)
}
