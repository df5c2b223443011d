package dgiwarp

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// The timeouts.
const (
	firstTimeout  = 10 * time.Millisecond
	minTimeout    = time.Millisecond
	maxTimeout    = time.Second
	giveUpTimeout = 10 * time.Second
)

var lossCases = overRD.Cases([]conformance.Case{{
	ID: "dg/loss/round-trips-set-the-timeout", Cite: cite("7.3", "dg/loss/1", "dg/loss/2"),
	Title:   "The timeout follows the measured round-trip time, and is 1 ms at least",
	Sends:   "Acks at once for some packets and none for the next; Acks of another peer 20 ms after each packet, then none",
	Expects: "retransmissions of the former after 1 ms to 5 ms, of the latter not before 20 ms",
	Defects: []string{"TimeoutFixed"}, Run: onPeer(func(p *peer) {
		p.establishDeviceFlow()
		for i := range 16 {
			p.PostSend(p.qp, p.sendWR(uint64(i), 0, 8))
			p.expectData(uint32(i + 1))
			p.ackAndComplete(uint64(i))
		}
		p.PostSend(p.qp, p.sendWR(16, 0, 8))
		gap := p.retransmitDelay(p.expectData(17))
		p.Check(gap >= minTimeout && (!p.Virtual || gap < 5*time.Millisecond), "a retransmission of packet 17 after 1 ms to 5 ms", "after %v", gap)
		p.ackAndComplete(16)

		slow := p.peer(1)
		slow.establishSlowly()
		p.PostSend(p.qp, slow.sendWR(200, 0, 8))
		gap = slow.retransmitDelay(slow.expectData(slow.fromDeviceFlow.next))
		p.Check(gap >= slowRoundTrip, fmt.Sprintf("no retransmission before %v", slowRoundTrip), "after %v", gap)
	}),
}, {
	ID: "dg/loss/timeout-of-known-round-trips", Cite: cite("7.3", "dg/loss/1", "dg/loss/2"),
	Title:   "The timeout is the smoothed round trip and four times its variation, at most 1 s, and doubles until there is news",
	Sends:   "Acks whose echoes tell of round trips of 2 ms to 8.6 s, then none for two packets in a row",
	Expects: "retransmissions after the timeout of RFC 6298, then after twice as long",
	Defects: []string{"TimeoutFixed", "VariationIgnored", "LongRoundTripWraps"}, Run: onPeer(func(p *peer) {
		for i, trips := range [][]time.Duration{
			{2}, {2, 2}, {8, 8, 8, 8, 8}, {2, 10}, {10, 2}, {4, 40, 4}, {500}, {8590}, // half of it are more nanoseconds than 32 bits have
		} {
			to := p.peer(i)
			var smoothed, variation time.Duration
			to.acceptFlowOf(to.sendWR(0, 0, 8))
			for k, ms := range append(trips, 0) {
				rtt := ms * time.Millisecond
				if rtt == 0 { // after two timeouts
					rtt = smoothed
				}
				to.ackWithRTT(rtt, uint64(k))
				if variation += (max(rtt-smoothed, smoothed-rtt) - variation) / 4; k == 0 {
					smoothed, variation = rtt, rtt/2
				}
				smoothed += (rtt - smoothed) / 8
				to.PostSend(p.qp, to.sendWR(uint64(k+1), 0, 8))
				a := to.expectData(uint32(k + 1))
				if k >= len(trips)-1 {
					due := min(smoothed+4*variation, maxTimeout)
					to.checkDelay(due, to.retransmitDelay(a))
					to.checkDelay(min(2*due, maxTimeout), to.retransmitDelay(a)-due)
				}
			}
			to.ackWithRTT(time.Millisecond, uint64(len(trips)+1))
		}
	}),
}, {
	ID: "dg/loss/last-packets-need-fewer", Cite: cite("7.3", "dg/loss/4"), Level: conformance.Should,
	Title:   "If nothing is left to send, fewer than three later packets tell of a loss",
	Sends:   "an Ack without the first of two, and of three, packets, which are all that there is",
	Expects: "an immediate retransmission of the first",
	Defects: []string{"NoEarlyResend"}, Run: onPeer(func(p *peer) {
		p.establishSlowly()
		for n := range uint32(2) {
			base := p.fromDeviceFlow.next
			for id := range uint64(n + 2) {
				p.PostSend(p.qp, p.sendWR(100+id, 0, 8))
			}
			p.expectDataRange(base, n+2)
			p.send(p.ack(base).SACK(1<<(n+1) - 1))
			p.expectRetransmission(base, slowRoundTrip)
			p.ackAll()
			p.skipRetransmissions(base)
			p.Completions()
		}
	}),
}, {
	ID: "dg/loss/timeout-doubles", Cite: cite("7.3", "dg/loss/2"),
	Title:   "The initial timeout is 10 ms, and doubles with each expiry up to 1 s",
	Sends:   "nothing in response to a start, then a Challenge",
	Expects: "retransmissions after 10, 20, 40 … 640 ms, then after 1 s; after the Challenge, after 10 ms",
	Defects: []string{"TimeoutFixed", "ChallengeIsNoNews"}, Run: onPeer(func(p *peer) {
		last := p.recvStartOf(p.sendWR(1, 0, 8))
		for want := firstTimeout; want < 2*maxTimeout; want *= 2 {
			due := min(want, maxTimeout)
			a := p.expectData(0)
			gap := a.At - last.At
			// A busy machine may be late, never early.
			p.Check(gap >= due*9/10 && (!p.Virtual || gap <= due*21/20), fmt.Sprintf("a retransmission of packet 0 after %v", due), "after %v", gap)
			last = a
		}
		gap := p.retransmitDelay(p.challenge(peerCookie))
		p.Check(!p.Virtual || gap < 2*firstTimeout, fmt.Sprintf("a retransmission after %v", firstTimeout), "after %v", gap)
	}),
}, {
	ID: "dg/loss/timer-of-the-oldest", Cite: cite("7.3", "dg/loss/2", "dg/loss/3"),
	Title:   "Neither later packets nor Acks without news postpone the timeout of the oldest packet",
	Sends:   "Acks of earlier packets, 8 ms apart, while the application posts another Send before each",
	Expects: "a retransmission of the oldest packet",
	Defects: []string{"PacketRestartsTimer", "OldAckRestartsTimer"}, Run: onPeer(func(p *peer) {
		p.establishSlowly()
		oldest := p.fromDeviceFlow.next
		for id := range uint64(12) {
			p.PostSend(p.qp, p.sendWR(100+id, 0, 8))
			p.send(p.ack(oldest))
			for until := p.Now() + 8*time.Millisecond; p.Now() < until; {
				if a, ok := p.nextData(until - p.Now()); ok && *a.Data.Seq == oldest && id > 0 {
					return
				}
			}
		}
		p.Fail(fmt.Sprintf("a retransmission of packet %d", oldest), "only later packets")
	}),
}, {
	ID: "dg/loss/all-is-lost-at-a-timeout", Cite: cite("7.3", "dg/loss/3"),
	Title:   "At a timeout all unacknowledged packets are retransmitted",
	Sends:   "no Ack for eight packets; after the first retransmission an Ack for the first four",
	Expects: "retransmissions of packets 1 to 4 at once, and of 5 to 8 after the Ack",
	Defects: []string{"TimeoutLosesOne"}, Run: onPeer(func(p *peer) {
		p.establishDeviceFlow()
		for id := range uint64(8) {
			p.PostSend(p.qp, p.sendWR(id, 0, 8))
		}
		p.expectDataRange(1, 8)
		first := p.expectData(1)
		for seq := range uint32(3) {
			a := p.expectData(seq + 2)
			p.Check(!p.Virtual || a.At-first.At < minTimeout, "retransmissions of all at one timeout", "packet %d after %v", seq+2, a.At-first.At)
		}
		begun := p.Now()
		p.send(p.ack(5))
		for seq := range uint32(4) {
			a := p.expectData(seq + 5)
			p.Check(!p.Virtual || a.At-begun < minTimeout, "the others after the Ack, without another timeout", "packet %d after %v", seq+5, a.At-begun)
		}
	}),
}, {
	ID: "dg/loss/three-later-ones-tell", Cite: cite("7.3", "dg/loss/4"), Level: conformance.Should,
	Title:   "A packet is lost when three later packets have arrived",
	Sends:   "Acks without the first of eight packets: with one, two and three of those after it",
	Expects: "a retransmission of the first right after the third of them, and not before",
	Defects: []string{"NoEarlyResend", "OneLaterTells"}, Run: onPeer(func(p *peer) {
		p.establishSlowly()
		for id := range uint64(8) {
			p.PostSend(p.qp, p.sendWR(100+id, 0, 8))
		}
		base := p.fromDeviceFlow.next
		p.expectDataRange(base, 4)
		for i := range 3 {
			if i > 0 {
				p.expectNoRetransmission(base)
			}
			p.send(p.ack(base).SACK(1<<(i+1) - 1))
		}
		p.expectRetransmission(base, slowRoundTrip)
	}),
}, {
	ID: "dg/loss/later-ones-tell-with-any-echo", Cite: cite("7.3", "dg/loss/4"), Level: conformance.Should,
	Title:   "Packets that were sent once tell of a loss, also if the Ack echoes the timestamp of the first of them",
	Sends:   "an Ack without the first of four packets, which were sent one after the other",
	Expects: "an immediate retransmission of the first",
	Defects: []string{"EchoHidesArrivals"}, Run: onPeer(func(p *peer) {
		p.establishSlowly()
		base := p.fromDeviceFlow.next
		var echo uint32
		for i := range uint32(4) {
			p.PostSend(p.qp, p.sendWR(uint64(100+i), 0, 8))
			a := p.expectData(base + i)
			if i == 1 {
				echo = *a.Data.Timestamp
			}
			p.Sleep(50 * time.Microsecond)
		}
		p.send(p.ack(base).SACK(1<<3 - 1).Echo(echo))
		p.expectRetransmission(base, slowRoundTrip)
	}),
}, {
	ID: "dg/loss/old-copy-tells-nothing-of-the-new", Cite: cite("7.3", "dg/loss/4"), Level: conformance.Should,
	Title:   "An Ack that echoes the timestamp of the first transmission of a packet does not tell that a later one has arrived",
	Sends:   "an Ack without the first of twelve packets and with three after it; after its retransmission one for four, with the old timestamp, and with the sixth",
	Expects: "no retransmission of the fifth packet: only one that was sent later has arrived",
	Defects: []string{"OldCopyCounts"}, Run: onPeer(func(p *peer) {
		p.establishSlowly()
		for id := range uint64(12) {
			p.PostSend(p.qp, p.sendWR(100+id, 0, 8))
		}
		base := p.fromDeviceFlow.next
		sent := *p.expectData(base).Data.Timestamp
		p.expectDataRange(base+1, 11)
		p.Sleep(100 * time.Microsecond)
		p.send(p.ack(base).SACK(1<<3 - 1))
		p.expectRetransmission(base, slowRoundTrip)
		p.send(p.ack(base + 4).SACK(iwarp.SACKOf(base+4, base+5)...).Echo(sent))
		p.expectNoRetransmission(base + 4)
	}),
}, {
	ID: "dg/loss/reordering-is-learned", Cite: cite("7.3", "dg/loss/4"), Level: conformance.Should, Setup: setupNarrowRD,
	Title:   "After an Ack with the repeats flag a packet is lost when six later packets have arrived",
	Sends:   "an Ack without one packet and with three after it; after its retransmission an Ack for all with the repeats flag; then Acks without one packet, with five after it, and with all that were sent",
	Expects: "a retransmission after the first of them, not after five, and after all",
	Defects: []string{"RepeatsUnheeded"}, Run: onSetup(setup{memLen: 1 << 20}, func(p *peer) {
		if !p.Virtual {
			rig.NotApplicable("timeouts can be excluded in virtual time only")
		}
		p.establishDeviceFlow()
		p.PostSend(p.qp, p.wr(100, verbs.OpRDMAWrite, 0, 1<<20))
		missing := p.drainFlight() - 4
		p.send(p.ack(missing).SACK(1<<3 - 1))
		p.expectRetransmission(missing, minTimeout/2)
		p.send(p.ack(p.fromDeviceFlow.next).EditHeader(func(h *iwarp.PacketHeader) { h.Repeats = new(true) }))
		missing = p.drainFlight() - 6
		p.send(p.ack(missing).SACK(1<<5 - 1))
		p.expectNoRetransmission(missing)
		var after []uint32
		for seq, end := missing+1, p.drainFlight(); seq != end; seq++ {
			after = append(after, seq)
		}
		p.send(p.ack(missing).SACK(iwarp.SACKOf(missing, after...)...))
		p.expectRetransmission(missing, minTimeout/2)
	}),
}, {
	ID: "dg/loss/gives-up-after-ten-seconds", Cite: cite("7.3", "dg/loss/5"), Labels: []string{conformance.Slow},
	Title:   "A flow fails when nothing was acknowledged for 10 s while packets were in flight",
	Sends:   "an Ack for a first Send, and none for two others, of which one is posted 5 s later; the Ack again each second",
	Expects: "both fail after 10 s, and not before; the queue pair still works",
	Defects: []string{"NeverGivesUp", "SendIsProgress", "OldAckIsProgress"}, Run: onPeer(func(p *peer) {
		p.establishDeviceFlow()
		begun := p.Now()
		p.PostSend(p.qp, p.sendWR(1, 0, 8))
		for second := range 9 {
			if second == 5 {
				p.PostSend(p.qp, p.sendWR(2, 0, 8))
			}
			p.Sleep(begun + time.Duration(second+1)*time.Second - p.Now())
			p.send(p.ack(1))
		}
		for id := range uint64(2) {
			wc, ok := p.PollCompletion(3 * giveUpTimeout)
			took := p.Now() - begun
			p.Check(ok, "a failure after 10 s", "none in %v", took)
			// The document does not say whether later requests fail alike or are flushed.
			p.Check(wc.WRID == id+1 && (wc.Status == verbs.WCRetryExcErr || id > 0 && wc.Status == verbs.WCWRFlushErr),
				fmt.Sprintf("request %d fails: retries exceeded", id+1), "completion of %d: %v", wc.WRID, wc.Status)
			p.Check(took >= giveUpTimeout && took < giveUpTimeout+2*maxTimeout, "a failure after 10 s", "after %v", took)
		}
		p.ExpectState(p.qp, verbs.QPStateRTS)
	}),
}, {
	ID: "dg/loss/gives-up-after-ten-timeouts-of-a-second", Cite: cite("7.3", "dg/loss/5"), Labels: []string{conformance.Slow},
	Title:   "A flow whose timeouts are of 1 s fails after ten of them",
	Sends:   "an Ack whose echo tells of a round trip of 2 s, and none for the next Send",
	Expects: "the Send fails after 10 s, not after another timeout",
	Defects: []string{"NeverGivesUp", "GivesUpLate"}, Run: onPeer(func(p *peer) {
		p.acceptFlowOf(p.sendWR(0, 0, 8))
		p.ackWithRTT(2*time.Second, 0)
		begun := p.Now()
		p.PostSend(p.qp, p.sendWR(1, 0, 8))
		p.expectData(1)
		wc, ok := p.PollCompletion(3 * giveUpTimeout)
		took := p.Now() - begun
		p.Check(ok && wc.WRID == 1 && wc.Status == verbs.WCRetryExcErr, "the failure of request 1: retries exceeded", "completion of %d: %v", wc.WRID, wc.Status)
		p.Check(took >= giveUpTimeout && (!p.Virtual || took < giveUpTimeout+maxTimeout/2), "a failure after 10 s", "after %v", took)
	}),
}})

// ackWithRTT acknowledges all received packets and expects that request id completes. The Ack
// echoes a timestamp that makes the device measure rtt as the round-trip time.
func (p *peer) ackWithRTT(rtt time.Duration, id uint64) {
	p.send(p.ack(p.fromDeviceFlow.next).Echo(p.fromDeviceFlow.lastTimestamp - uint32(rtt/time.Microsecond)))
	p.ExpectCompletion(id, verbs.WCSuccess)
}

// checkDelay fails the case unless a retransmission came after the delay due, within 5 %. In real
// time it may come later.
func (p *peer) checkDelay(due, got time.Duration) {
	p.Check(got >= due*95/100 && (!p.Virtual || got <= due*105/100), fmt.Sprintf("a retransmission after %v", due), "after %v", got)
}

// retransmitDelay receives the retransmission of packet a, and returns its delay.
func (p *peer) retransmitDelay(a arrival) time.Duration { return p.expectData(*a.Data.Seq).At - a.At }

// skipRetransmissions waits for a completion, and skips the packets that have arrived by then. A
// data packet other than a retransmission of packet seq fails the case.
func (p *peer) skipRetransmissions(seq uint32) {
	p.NextCompletion()
	for _, a := range p.drainArrived() {
		if a.Data != nil {
			p.Check(*a.Data.Seq == seq, fmt.Sprintf("nothing but packet %d", seq), "%v", a.Packet)
		}
	}
}

// slowRoundTrip is a round-trip time that makes the timeout longer than a case needs to respond.
const slowRoundTrip = 20 * time.Millisecond

// establishSlowly establishes the device's flow and acknowledges each packet later than the one
// before, up to slowRoundTrip, so that the device extends its retransmission timeout. It skips
// retransmissions meanwhile.
func (p *peer) establishSlowly() {
	p.acceptFlowOf(p.sendWR(establishID, 0, 8))
	p.Sleep(firstTimeout / 2)
	p.ackAll()
	p.skipRetransmissions(0)
	for i := range 12 {
		seq := p.fromDeviceFlow.next
		p.PostSend(p.qp, p.sendWR(uint64(i), 0, 8))
		p.expectData(seq)
		p.Sleep(min(8*time.Millisecond+time.Duration(i)*4*time.Millisecond, slowRoundTrip))
		p.ackAll()
		p.skipRetransmissions(seq)
	}
}

// expectRetransmission fails the case unless the device retransmits packet seq within this time,
// which is extended to slowRoundTrip in real time. It skips other packets.
func (p *peer) expectRetransmission(seq uint32, within time.Duration) {
	if !p.Virtual {
		within = max(within, slowRoundTrip)
	}
	begun := p.Now()
	for {
		a, ok := p.nextData(p.ResponseTimeout())
		p.Check(ok && a.At-begun < within, fmt.Sprintf("an immediate retransmission of packet %d", seq), "not in %v", p.Now()-begun)
		if *a.Data.Seq == seq {
			return
		}
	}
}

// expectNoRetransmission expects no retransmission of packet seq for a quarter of minTimeout.
func (p *peer) expectNoRetransmission(seq uint32) {
	for until := p.Now() + minTimeout/4; p.Now() < until; {
		if a, ok := p.nextData(until - p.Now()); ok {
			p.Check(*a.Data.Seq != seq, fmt.Sprintf("no retransmission of packet %d yet", seq), "%v", a.Packet)
		}
	}
}

// drainFlight receives data packets until the device pauses, because its window is used up, and
// returns the next sequence number. If no packet arrives in 1/20 of the minimum retransmission
// timeout, the device has paused.
func (p *peer) drainFlight() uint32 {
	for {
		if _, ok := p.nextData(minTimeout / 20); !ok {
			return p.fromDeviceFlow.next
		}
	}
}
