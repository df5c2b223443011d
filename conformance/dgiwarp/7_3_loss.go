package dgiwarp

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/dg"
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

var lossCases = []conformance.Case{
	{
		ID:    "dg/loss/round-trips-set-the-timeout",
		Title: "The timeout follows the round trips that are measured: 1 ms where they are short, longer than they are where they are long",
		Cite:  cite("7.3", "dg/loss/1", "dg/loss/2"), Level: conformance.Must, Needs: needsRD, Setup: setupRD, Labels: labelRD,
		Sends:   "Acks at once for some packets and none for the next; Acks of another peer 20 ms after each packet, then none",
		Expects: "the former again after 1 ms to 5 ms, the latter not before 20 ms",
		Defects: []string{"TimeoutFixed"},
		Run: onPeer(func(p *peer) {
			p.establishDeviceFlow()
			for i := range 16 {
				p.PostSend(p.qp, p.sendWR(uint64(i), 0, 8))
				p.expectData(uint32(i + 1))
				p.ackAll()
				p.ExpectCompletion(uint64(i), verbs.WCSuccess)
			}
			p.PostSend(p.qp, p.sendWR(16, 0, 8))
			gap := p.retransmitDelay(p.expectData(17))
			p.Check(gap >= minTimeout && (!p.Virtual || gap < 5*time.Millisecond), "packet 17 again after 1 ms to 5 ms", "after %v", gap)
			p.ackAll()
			p.ExpectCompletion(16, verbs.WCSuccess)

			slow := p.peer(1)
			slow.establishSlowly()
			p.PostSend(p.qp, slow.sendWR(200, 0, 8))
			gap = slow.retransmitDelay(slow.expectData(slow.fromDeviceFlow.next))
			p.Check(gap >= slowRoundTrip, fmt.Sprintf("a packet not again before %v", slowRoundTrip), "after %v", gap)
		}),
	},
	{
		ID:    "dg/loss/timeout-doubles",
		Title: "The timeout is 10 ms before anything was measured, and doubles each time that it ends without news, up to 1 s",
		Cite:  cite("7.3", "dg/loss/2"), Level: conformance.Must, Needs: needsRD, Setup: setupRD, Labels: labelRD,
		Sends:   "nothing in response to a start",
		Expects: "it again after 10, 20, 40 … 640 ms, then after 1 s",
		Defects: []string{"TimeoutFixed"},
		Run: onPeer(func(p *peer) {
			p.PostSend(p.qp, p.sendWR(1, 0, 8))
			last := p.recvStart()
			for want := firstTimeout; want < 2*maxTimeout; want *= 2 {
				due := min(want, maxTimeout)
				a := p.expectData(0)
				gap := a.At - last.At
				// A machine that is busy is late now and then, never early.
				p.Check(gap >= due*9/10 && (!p.Virtual || gap <= due*11/10), fmt.Sprintf("packet 0 again after %v", due), "after %v", gap)
				last = a
			}
		}),
	},
	{
		ID:    "dg/loss/all-is-lost-at-a-timeout",
		Title: "At a timeout all that was not acknowledged counts as lost, and is sent again",
		Cite:  cite("7.3", "dg/loss/3"), Level: conformance.Must, Needs: needsRD, Setup: setupRD, Labels: labelRD,
		Sends:   "no Ack for eight packets; when the first has come again an Ack for the first four",
		Expects: "packets 1 to 4 again at once, and 5 to 8 again after the Ack",
		Defects: []string{"TimeoutLosesOne"},
		Run: onPeer(func(p *peer) {
			p.establishDeviceFlow()
			for id := range uint64(8) {
				p.PostSend(p.qp, p.sendWR(id, 0, 8))
			}
			for seq := range uint32(8) {
				p.expectData(seq + 1)
			}
			first := p.expectData(1)
			for seq := range uint32(3) {
				a := p.expectData(seq + 2)
				p.Check(!p.Virtual || a.At-first.At < minTimeout, "all of them again at one timeout", "packet %d after %v", seq+2, a.At-first.At)
			}
			begun := p.Now()
			p.send(p.ack(5))
			for seq := range uint32(4) {
				a := p.expectData(seq + 5)
				p.Check(!p.Virtual || a.At-begun < minTimeout, "the rest after the Ack, without another timeout", "packet %d after %v", seq+5, a.At-begun)
			}
		}),
	},
	{
		ID:    "dg/loss/three-later-ones-tell",
		Title: "A packet counts as lost when three that were sent later have arrived",
		Cite:  cite("7.3", "dg/loss/4"), Level: conformance.Should, Needs: needsRD, Setup: setupRD, Labels: labelRD,
		Sends:   "Acks without the first of eight packets: with one, two and three of those after it",
		Expects: "the first again after the third of them, at once and without a timeout, and not before",
		Defects: []string{"NoEarlyResend", "OneLaterTells"},
		Run: onPeer(func(p *peer) {
			p.establishSlowly()
			for id := range uint64(8) {
				p.PostSend(p.qp, p.sendWR(100+id, 0, 8))
			}
			base := p.fromDeviceFlow.next
			for seq := range uint32(4) {
				p.expectData(base + seq)
			}
			for i := range 3 {
				if i > 0 {
					p.expectNoRetransmission(base)
				}
				p.send(p.ack(base).SACK(1<<(i+1) - 1))
			}
			p.expectRetransmission(base, slowRoundTrip)
		}),
	},
	{
		ID:    "dg/loss/reordering-is-learned",
		Title: "Behind an Ack that says that something was sent again for nothing, it takes six later packets to count one as lost",
		Cite:  cite("7.3", "dg/loss/4"), Level: conformance.Should, Needs: needsRD, Setup: setupNarrowRD, Labels: labelRD,
		Sends:   "an Ack without one packet and with three after it; when it has come again an Ack for all with the repeats flag; then Acks without one packet, with five after it, and with all that were sent",
		Expects: "the packet again after the first of them, not after five, and again after all",
		Defects: []string{"RepeatsUnheeded"},
		Run: onSetup(setup{memLen: 1 << 20}, func(p *peer) {
			if !p.Virtual {
				rig.NotApplicable("that no timeout comes between is certain in exact time only")
			}
			p.establishDeviceFlow()
			p.PostSend(p.qp, p.wr(100, verbs.OpRDMAWrite, 0, 1<<20))
			missing := p.drainFlight() - 4
			p.send(p.ack(missing).SACK(1<<3 - 1))
			p.expectRetransmission(missing, minTimeout/2)
			p.send(p.ack(p.fromDeviceFlow.next).Repeats())
			missing = p.drainFlight() - 6
			p.send(p.ack(missing).SACK(1<<5 - 1))
			p.expectNoRetransmission(missing)
			var after []uint32
			for seq, end := missing+1, p.drainFlight(); seq != end; seq++ {
				after = append(after, seq)
			}
			p.send(p.ack(missing).SACK(dg.SACKOf(missing, after...)...))
			p.expectRetransmission(missing, minTimeout/2)
		}),
	},
	{
		ID:    "dg/loss/gives-up-after-ten-seconds",
		Title: "A flow fails when nothing was acknowledged for 10 s while something was under way",
		Cite:  cite("7.3", "dg/loss/5"), Level: conformance.Must, Needs: needsRD, Setup: setupRD, Labels: labelSlow,
		Sends:   "an Ack for a first Send, and none for two others",
		Expects: "both fail after 10 s, and not before; the queue pair still works",
		Defects: []string{"NeverGivesUp"},
		Run: onPeer(func(p *peer) {
			p.establishDeviceFlow()
			begun := p.Now()
			p.PostSend(p.qp, p.sendWR(1, 0, 8), p.sendWR(2, 0, 8))
			for id := range uint64(2) {
				wc, ok := p.PollCompletion(3 * giveUpTimeout)
				took := p.Now() - begun
				p.Check(ok, "a failure after 10 s", "none in %v", took)
				// Whether those after the first have the same reason or are flushed, the document
				// does not say.
				p.Check(wc.WRID == id+1 && (wc.Status == verbs.WCRetryExcErr || id > 0 && wc.Status == verbs.WCWRFlushErr),
					fmt.Sprintf("request %d fails: retries exceeded", id+1), "completion of %d: %v", wc.WRID, wc.Status)
				p.Check(took >= giveUpTimeout && took < giveUpTimeout+2*maxTimeout, "a failure after 10 s", "after %v", took)
			}
			p.ExpectState(p.qp, verbs.QPStateRTS)
		}),
	},
}

// retransmitDelay is how long after a packet the device sends it again.
func (p *peer) retransmitDelay(a arrival) time.Duration { return p.expectData(*a.Data.Seq).At - a.At }

// skipRetransmissions lets pass what the device has sent again of a packet by now, until its
// request has completed.
func (p *peer) skipRetransmissions(seq uint32) {
	p.NextCompletion()
	for _, a := range p.drain(0) {
		if a.Data != nil {
			p.Check(*a.Data.Seq == seq, fmt.Sprintf("nothing but packet %d", seq), "%v", a.Packet)
		}
	}
}

// slowRoundTrip is a round trip that is long against everything but waiting, so that no
// timeout comes between.
const slowRoundTrip = 20 * time.Millisecond

// establishSlowly begins the device's flow to the peer, and has the device believe that round
// trips take long: each a little longer than the one before, so that none is taken for
// a loss.
func (p *peer) establishSlowly() {
	p.PostSend(p.qp, p.sendWR(establishID, 0, 8))
	p.acceptFlow()
	p.Sleep(firstTimeout / 2)
	p.ackAll()
	p.skipRetransmissions(0)
	for i := range 12 {
		seq := p.fromDeviceFlow.next
		p.PostSend(p.qp, p.sendWR(uint64(i), 0, 8))
		p.expectData(seq)
		p.Sleep(min(time.Duration(i+2)*4*time.Millisecond, slowRoundTrip))
		p.ackAll()
		p.skipRetransmissions(seq)
	}
}

// expectRetransmission fails the case unless the device sends a packet again in less than some time.
// What it sends for the first time passes. Where time is real, the least timeout is less
// than what a busy machine needs to answer.
func (p *peer) expectRetransmission(seq uint32, within time.Duration) {
	if !p.Virtual {
		within = max(within, slowRoundTrip)
	}
	begun := p.Now()
	for {
		a, ok := p.nextData(p.ResponseTimeout())
		p.Check(ok && a.At-begun < within, fmt.Sprintf("packet %d again at once", seq), "not in %v", p.Now()-begun)
		if *a.Data.Seq == seq {
			return
		}
	}
}

// expectNoRetransmission fails the case if the device sends a packet again that is not due, where round
// trips are short.
func (p *peer) expectNoRetransmission(seq uint32) {
	for until := p.Now() + minTimeout/4; p.Now() < until; {
		if a, ok := p.nextData(until - p.Now()); ok {
			p.Check(*a.Data.Seq != seq, fmt.Sprintf("packet %d not again yet", seq), "%v", a.Packet)
		}
	}
}

// drainFlight waits until the device has sent all that it may before the next Ack, where
// round trips are short, and returns the number of the packet that would follow. A case
// that leaves little of it under way has made room for whatever is to be sent next.
func (p *peer) drainFlight() uint32 {
	for {
		if _, ok := p.nextData(minTimeout / 20); !ok {
			return p.fromDeviceFlow.next
		}
	}
}
