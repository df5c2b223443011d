package dgiwarp

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/dg"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// busyQuiet is less than peers that wait are silent.
const busyQuiet = 500 * time.Microsecond

// How long a sender waits for a peer that is busy.
const (
	firstBusyWait = time.Millisecond
	maxBusyWait   = 128 * time.Millisecond
)

var busyCases = []conformance.Case{
	{
		ID:    "dg/busy/not-taken-and-said",
		Title: "A Send for which there is no receive is not taken, not acknowledged and not kept, and the Ack says so",
		Cite:  cite("7.4", "dg/busy/1"), Level: conformance.Must, Needs: rd, Setup: reliable, Labels: labelRD,
		Sends:   "a Send without a receive, twice; the same when there is one",
		Expects: "Acks with window 0 that do not tell of it; a receive when it comes the third time only",
		Defects: []string{"BusyAcknowledges"},
		Run: onFlow(setup{}, func(p *peer) {
			s := p.following(iwarp.Send(1, data(8))).AckNow()
			for range 2 {
				p.send(s)
				p.expect(dg.Ack(p.out.epoch, 1).SACK().Window(0))
			}
			p.PostRecv(p.qp, 1, p.own.SGE(0, p.recvLen))
			p.settle()
			p.ExpectNoCompletion()
			p.early = nil // whoever waited may be told to go on
			p.send(s)
			p.gets(1, data(8))
			a := p.expectAck(2)
			p.Check(*a.Ack.Window > 0, "a window that is not 0 behind what was taken", "0")
		}),
	},
	{
		ID:    "dg/busy/sender-asks-ever-more-rarely",
		Title: "A sender that is told to wait sends nothing but its oldest packet again, after 1 ms, 2 ms and so on up to 128 ms",
		Cite:  cite("7.4", "dg/busy/2"), Level: conformance.Must, Needs: rd, Setup: reliable, Labels: labelRD,
		Sends:   "Acks with window 0 for a Send, again and again",
		Expects: "the oldest packet of four, each time after twice as long",
		Defects: []string{"BusyHammers"},
		Run: onPeer(func(p *peer) {
			p.established()
			p.PostSend(p.qp, p.sendWR(1, 0, 8), p.sendWR(2, 0, 8), p.sendWR(3, 0, 8), p.sendWR(4, 0, 8))
			for seq := range uint32(3) {
				p.expectData(seq + 1)
			}
			last := p.expectData(4)
			p.saysBusy()
			if !p.Virtual { // a timeout may have crossed with that on the wire
				p.settle()
				for _, a := range p.drained(0) {
					last = a
					p.saysBusy()
				}
			}
			for want := firstBusyWait; want < 4*maxBusyWait; want *= 2 {
				due := min(want, maxBusyWait)
				a := p.expectData(1)
				gap := a.At - last.At
				p.Check(gap >= due*9/10 && (!p.Virtual || gap <= due*13/10), fmt.Sprintf("packet 1 again after %v", due), "after %v", gap)
				p.saysBusy()
				last = a
			}
			p.ExpectNoCompletion()
		}),
	},
	{
		ID:    "dg/busy/sender-does-not-give-up",
		Title: "A sender does not give up while a busy peer answers, and goes on when it is told to",
		Cite:  cite("7.4", "dg/busy/2"), Level: conformance.Must, Needs: rd, Setup: reliable, Labels: labelSlow,
		Sends:   "Acks with window 0 for 12 s, then one that takes the Send",
		Expects: "no failure, then a success",
		Defects: []string{"BusyHammers"},
		Run: onPeer(func(p *peer) {
			p.established()
			p.PostSend(p.qp, p.sendWR(1, 0, 8))
			p.expectData(1)
			for until := p.Now() + giveUp + 2*time.Second; p.Now() < until; {
				p.saysBusy()
				p.expectData(1)
				p.ExpectNoCompletion()
			}
			p.send(p.ack(1))
			p.expectData(1)
			p.acks()
			p.ExpectCompletion(1, verbs.WCSuccess)
		}),
	},
	{
		ID:    "dg/busy/told-to-go-on",
		Title: "When a receive is posted, the peer that was told to wait for one is told to go on",
		Cite:  cite("7.4", "dg/busy/3"), Level: conformance.Should, Needs: rd, Setup: reliable, Labels: labelRD,
		Sends:   "a Send to a queue pair without receives, which then gets one; the Send again",
		Expects: "an Ack with window 0, one with a window, and a receive",
		Defects: []string{"NoResume"},
		Run:     on(setup{}, func(p *peer) { p.waitTheirTurn(p) }),
	},
	{
		ID:    "dg/busy/told-to-go-on-in-turn",
		Title: "As many peers as there are receives are told to go on, those that have waited longest first",
		Cite:  cite("7.4", "dg/busy/3"), Level: conformance.Should, Needs: rd, Setup: reliable, Labels: labelRD,
		Sends:   "Sends of three peers to a queue pair without receives, which gets one after the other",
		Expects: "with each receive an Ack with a window for one peer, in the order in which they came",
		Defects: []string{"NoResume"},
		Run:     on(setup{}, func(p *peer) { p.waitTheirTurn(p, p.peer(1), p.peer(2)) }),
	},
	{
		ID:    "dg/busy/writes-are-not-held-up",
		Title: "Without receives Writes and Read Requests are carried out, unless they are behind a Send that waits",
		Cite:  cite("7.4", "dg/busy/4"), Level: conformance.Must, Needs: rd, Setup: reliable, Labels: labelRD,
		Sends:   "a Write and a Read Request without a receive; then a Send, and a Write behind it",
		Expects: "Acks and a Read Response; a window of 0 for the Send, and nothing of what is behind it",
		Defects: []string{"BusyHoldsWrites"},
		Run: onFlow(setup{}, func(p *peer) {
			p.delivers(p.writes(0, data(8)))
			p.ExpectBytes(p.mem, 0, data(8))
			p.mem.Snapshot()
			p.send(p.following(iwarp.ReadRequest(1, iwarp.At(peerSTag, peerTO), 8, p.at(0))).AckNow())
			a, ok := p.nextData(p.ResponseTimeout())
			p.Check(ok, "a Read Response", "nothing in %v", p.ResponseTimeout())
			p.same(dg.Any().With(iwarp.ReadResponse(peerSTag, peerTO, data(8))), a)
			p.in.epoch = *a.Data.Epoch
			if a.Data.Start != nil && *a.Data.Start.Proof == 0 {
				p.challenge(peerCookie)
				p.showsProof(peerCookie)
			}
			p.acks()
			p.early = nil
			waiting := p.out.next
			p.send(p.following(iwarp.Send(1, data(8))).AckNow(), p.following(p.writes(8, data(8))).AckNow())
			p.settle()
			for _, a := range p.drained(0) {
				p.Check(a.Ack == nil || int32(*a.Ack.Next-waiting) <= 0, "no Ack for what waits", "%v", a.Packet)
			}
			p.ExpectUnchanged(p.mem, 0, 0)
		}),
	},
}

// saysBusy tells the device's flow that the peer has no receive for packet 1.
func (p *peer) saysBusy() { p.send(p.ack(1).Window(0)) }

// waitTheirTurn has peers wait for receives, and ends the case unless each of them is
// told to go on when there is one for it.
func (p *peer) waitTheirTurn(peers ...*peer) {
	for _, x := range peers {
		x.begin(emptyWrite())
	}
	var sends []dg.Packet
	for _, x := range peers {
		s := x.following(iwarp.Send(1, data(8))).AckNow()
		sends = append(sends, s)
		x.send(s)
		x.expect(dg.Ack(x.out.epoch, 1).Window(0))
	}
	for i, x := range peers {
		p.PostRecv(p.qp, uint64(i+1), p.own.SGE(i*p.recvLen, p.recvLen))
		a := x.expect(dg.Ack(x.out.epoch, 1))
		p.Check(*a.Ack.Window > 0, "an Ack with a window", "%v", a.Packet)
		p.silence(busyQuiet)
		x.send(sends[i])
		p.gets(uint64(i+1), data(8))
		x.expectAck(2)
	}
}
