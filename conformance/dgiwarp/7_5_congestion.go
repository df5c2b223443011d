package dgiwarp

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

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
		p.send(p.ack(oldest).Marked())
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
	Title:   "Packets are paced: at most 32 are sent at once",
	Sends:   "Acks for whole windows, each 20 ms after its packets",
	Expects: "at most 32 packets at the same time, though the window is larger",
	Defects: []string{"NoPacing"}, Run: onSetup(setup{memLen: 4 << 20}, func(p *peer) {
		if !p.Virtual {
			rig.NotApplicable("bursts can be observed in virtual time only")
		}
		p.establishSlowly()
		p.PostSend(p.qp, p.wr(100, verbs.OpRDMAWrite, 0, 4<<20))
		for p.fromDeviceFlow.next < 400 {
			var all []arrival
			for until := p.Now() + slowRoundTrip; p.Now() < until; {
				if a, ok := p.nextData(until - p.Now()); ok {
					all = append(all, a)
				}
			}
			p.Check(len(all) > 0, "packets after an Ack", "none")
			for i := range all {
				if k := i + burst; k < len(all) {
					gap := all[k].At - all[i].At
					p.Check(gap > noPacingGap, "at most 32 packets at once", "33 in %v", gap)
				}
			}
			p.ackAll()
		}
	}),
}})

// noPacingGap is shorter than any pacing gap at these rates.
const noPacingGap = 10 * time.Microsecond

// expectInFlight fails the case unless the device has least to most packets in flight from
// oldest on, while the peer sends no Ack. It returns their number. It waits for each packet less
// than the shortest retransmission timeout.
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
	// In real time a late Ack may count as a loss, which reduces the window.
	p.Check(n >= least || !p.Virtual && n > 0, fmt.Sprintf("at least %d outstanding packets", least), "%d, from %d on", n, oldest)
	return n
}

// expectTimeoutRetransmission fails the case unless the device retransmits at a timeout, from packet
// oldest on and at most minWindow packets.
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
