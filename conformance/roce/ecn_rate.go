package roce

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var congestionCases = overRC.Cases([]conformance.Case{{
	ID: "ecn/rate/named-qp-slows", Cite: annexA17("CA17-45", "roce/ecn/3"), Needs: verbs.CapCongestion,
	Title:   "A queue pair that receives CNPs reduces its rate",
	Sends:   "CNPs to a queue pair that sends",
	Expects: "the packets of a burst at half the rate or less",
	Defects: []string{"NoCongestion"}, Run: onFlow(func(f *flow) {
		before := f.burst()
		f.expectSlower(before, f.burstWith(f.cnpsOf(ib.CNP())))
	}),
}, {
	ID: "ecn/rate/other-qps-keep-theirs", Cite: annexA17("CA17-45", "roce/ecn/3"), Needs: verbs.CapCongestion,
	Title:   "A CNP reduces the rate of its queue pair, and of no other",
	Sends:   "CNPs to one of two queue pairs with the same peer",
	Expects: "the other at its rate",
	Defects: []string{"CNPSlowsAll"}, Run: OnPort(func(p *Port) {
		named, other := p.newFlow(peerQPN), p.newFlow(peerQPN+1)
		before := other.burst()
		other.expectSameRate(before, other.burstWith(named.cnpsOf(ib.CNP())))
	}),
}, {
	ID:   "ecn/rate/comes-back",
	Cite: annexA17("CA17-46", "roce/ecn/4"), Level: conformance.Should, Needs: verbs.CapCongestion,
	Title:   "The rate of a queue pair recovers when no more CNPs arrive",
	Sends:   "CNPs to a queue pair that sends, and then none",
	Expects: "bursts at twice the lowest rate or more, in time",
	Defects: []string{"RateNeverRecovers"}, Run: onFlow(func(f *flow) {
		before := f.burst()
		slow := f.burstWith(f.cnpsOf(ib.CNP()))
		if slow < 2*max(before, flowQuick) {
			rig.Abort(fmt.Errorf("the device does not reduce its rate, which another case checks: %w", conformance.ErrBenchCannot))
		}
		now := slow
		for until := f.Now() + f.ResponseTimeout(); now > slow/2; now = f.burst() {
			f.Check(f.Now() < until, fmt.Sprintf("a rate that rises: %v or less for %d packets", slow/2, flowPackets), "%v, after %v", now, f.ResponseTimeout())
			f.Sleep(maxCNPInterval)
		}
	}),
}, {
	ID: "ecn/drop/cnp-takes-no-psn", Cite: ibta("", "roce/ecn/5"),
	Title:   "A CNP does not use a PSN and gets no response, whatever its PSN is",
	Sends:   "CNPs, with PSN 0, to connections on which a PSN above 0 is due, PSN 0 itself, and one shortly before it",
	Expects: "no response, no effect, and the expected PSN unchanged",
	Defects: []string{"CNPTakesPSN"}, Run: OnPort(func(p *Port) {
		for _, due := range []uint32{firstPeerPSN, 0, 0xffff00} {
			c := p.connect(Setup{Receives: 1, Modify: func(a *verbs.QPAttr) { a.RQPSN = due }})
			c.expectDropped(ib.CNP())
			c.expectAccepted(0)
		}
	}),
}, {
	ID: "ecn/drop/cnp-for-nobody-slows-nobody", Cite: ibta("", "roce/ecn/5"), Needs: verbs.CapCongestion,
	Title:   "A CNP for a queue pair that does not exist is dropped without effect",
	Sends:   "CNPs for the number of no queue pair",
	Expects: "no answer, and a queue pair that sends at its rate",
	Defects: []string{"QPNLoose"}, Run: onFlow(func(f *flow) {
		before := f.burst()
		f.expectSameRate(before, f.burstWith(f.cnpsOf(ib.CNP().To(0xabcdef))))
		f.expectSilence(shortWait)
	}),
}, {
	ID: "ecn/drop/cnp-with-wrong-icrc-slows-nobody", Cite: ibta("", "roce/ecn/5"), Needs: verbs.CapCongestion,
	Title:   "A CNP with a wrong ICRC is dropped without effect",
	Sends:   "CNPs with one bit of their ICRC turned",
	Expects: "no answer, and a queue pair that sends at its rate",
	Defects: []string{"ICRCIgnored"}, Run: onFlow(func(f *flow) {
		before := f.burst()
		f.expectSameRate(before, f.burstWith(f.cnpsOf(ib.CNP().BadICRC())))
		f.expectSilence(shortWait)
	}),
}, {
	ID:   "ecn/count/cnps-sent-agree-with-the-wire",
	Cite: conformance.Cite{Doc: "Lumina", Rows: []string{"roce/ecn/7"}}, Level: conformance.Should,
	Needs:   verbs.CapCongestion,
	Title:   "The counters of CE marks, CNPs sent and CNPs handled agree with the wire",
	Sends:   "three marked WRITEs, at intervals longer than that of CNPs; four CNPs",
	Expects: "increases by 3 marks, by the number of CNPs received, and by 4 CNPs handled; the counter of CNPs sent is required",
	Defects: []string{"CNPCounterStuck"}, Run: onConn(Setup{}, func(c *Conn) {
		sent, marked, handled := c.watchCounter(cntCNPsSent), c.watchCounter(cntMarksSeen), c.watchCounter(cntCNPsHandled)
		cnps := 0
		for i := range 3 {
			c.Send(ib.WriteOnly(c.PeerPSN(i), c.RETH(0, 16), Data(16)).AckReq().CE())
			cnps += c.countCNPs()
			c.Sleep(maxCNPInterval)
		}
		for range 4 {
			c.Send(ib.CNP())
		}
		cnps += c.countCNPs()
		sent.expectIncrease(c.Port, cnps, true)
		marked.expectIncrease(c.Port, 3, false)
		handled.expectIncrease(c.Port, 4, false)
	}),
}, {
	ID:   "ecn/count/implied-naks-agree-with-the-wire",
	Cite: conformance.Cite{Doc: "Lumina", Rows: []string{"roce/ecn/7"}}, Level: conformance.Should,
	Title:   "The counter of implied NAKs agrees with the wire",
	Sends:   "twice, an ACK for a SEND after a READ that was not answered; then the answer",
	Expects: "a count of 2",
	Defects: []string{"ImpliedNAKCounterStuck"}, Run: onConn(Setup{signalAll: true}, func(c *Conn) {
		implied := c.watchCounter(cntImpliedNAKs)
		for i := range 2 {
			c.PostSend(c.QP,
				verbs.SendWR{WRID: 1, Opcode: verbs.OpRDMARead, SGL: c.LocalMem.SGL(0, 16), Remote: verbs.Remote{Addr: 0x1000, RKey: 7}},
				verbs.SendWR{WRID: 2, Opcode: verbs.OpSend, SGL: c.LocalMem.SGL(64, 8)},
			)
			c.nextPackets(2)
			c.Send(ib.Ack(c.DevicePSN(2*i+1), uint32(2*i+2)))
			c.Sync()
			c.Send(ib.ReadResponseOnly(c.DevicePSN(2*i), uint32(2*i+1), Data(16)), ib.Ack(c.DevicePSN(2*i+1), uint32(2*i+2)))
			c.ExpectCompletions(verbs.WCSuccess, 1, 2)
			c.Sync()
			c.DiscardSkipped() // the device may have retransmitted the READ and later requests
		}
		implied.expectIncrease(c.Port, 2, true)
	}),
}})

// counterWatch is a counter of the device and its initial value.
type counterWatch struct {
	names []string
	start uint64
}

// watchCounter starts to watch a counter.
func (p *Port) watchCounter(c *rig.Counter) counterWatch {
	start, _ := p.readCounter(c.Names)
	return counterWatch{c.Names, start}
}

// readCounter returns the first of these counters that the device has.
func (p *Port) readCounter(names []string) (uint64, bool) {
	for _, name := range names {
		if v, ok := p.Counter(name); ok {
			return v, true
		}
	}
	return 0, false
}

// expectIncrease fails the case unless the counter has increased by want. If the device
// does not have the counter, the case ends as unsupported if needed is set.
func (k counterWatch) expectIncrease(p *Port, want int, needed bool) {
	now, ok := p.readCounter(k.names)
	switch {
	case ok:
		p.Check(now-k.start == uint64(want), fmt.Sprintf("%s increased by %d", k.names[0], want), "%d", now-k.start)
	case needed:
		rig.Abort(fmt.Errorf("the device has no counter %s: %w", strings.Join(k.names, " or "), conformance.ErrBenchCannot))
	}
}

// flow is a connection on which a case measures the sending rate of the device.
type flow struct {
	*Conn
	sent int // packets so far
	mtu  int
	from *rig.Memory
}

// flowPackets is the number of packets in a burst, fewer than any window. They have the
// port's MTU, so that the line rate and not the packet rate limits the burst.
const flowPackets = 64

// onFlow makes the body of a case from a function that uses a flow.
func onFlow(body func(*flow)) func(*conformance.Bench) error {
	return OnPort(func(p *Port) { body(p.newFlow(peerQPN)) })
}

// newFlow makes a flow to a queue pair of the peer.
func (p *Port) newFlow(to verbs.QPN) *flow {
	attr := p.QueryPort()
	c := p.connect(Setup{signalAll: true, Modify: func(a *verbs.QPAttr) { a.DestQPN, a.PathMTU = to, attr.ActiveMTU }})
	mtu := attr.ActiveMTU.Bytes()
	p.Sync() // resolve the peer's address first: the host would drop most of a burst meanwhile
	return &flow{Conn: c, mtu: mtu, from: p.Memory(flowPackets*mtu, verbs.AccessLocalWrite)}
}

// burst returns how long the device takes from the first packet of a burst to the last.
// It returns the shortest of three measurements, because the bench can only add delay.
func (f *flow) burst() time.Duration {
	nothing := func() {}
	return min(f.burstOnce(nothing), f.burstOnce(nothing), f.burstOnce(nothing))
}

// burstWith is burst under congestion. It returns the median of three measurements: the
// rate may rise again during a long pause of the bench.
func (f *flow) burstWith(s cnpSource) time.Duration {
	var took [3]time.Duration
	for i := range took {
		s.before()
		took[i] = f.burstOnce(s.each)
	}
	slices.Sort(took[:])
	return took[1]
}

// burstOnce has the device send a WRITE and calls do for each of its packets. A task
// posts the WRITE and do is also called until the first packet arrives, so that a slow
// verb call leaves no pause in which a reduced rate rises again.
func (f *flow) burstOnce(do func()) time.Duration {
	post := f.Go("post", func() error {
		_, err := f.QP.PostSend([]verbs.SendWR{{WRID: 1, Opcode: verbs.OpRDMAWrite, SGL: f.from.SGL(0, flowPackets*f.mtu), Remote: verbs.Remote{Addr: 0x1000, RKey: 7}}})
		return err
	})
	var first, last time.Duration
	for i := range flowPackets {
		pkt, ok := f.nextPacket(cnpInterval)
		for until := f.Now() + f.ResponseTimeout(); !ok && f.Now() < until; pkt, ok = f.nextPacket(cnpInterval) {
			do()
		}
		f.Check(ok, fmt.Sprintf("a WRITE of %d packets", flowPackets), "%d", i)
		f.checkPacket(ib.Packet{}.WithPSN(f.DevicePSN(f.sent)), pkt)
		if i == 0 {
			first = f.lastArrival
		}
		last = f.lastArrival
		f.sent++
		do() // do may take as long as the device
	}
	took := last - first
	f.Must("a WRITE that can be posted", post.Wait(f.ResponseTimeout()))
	f.completeWith(ib.Ack(f.DevicePSN(f.sent-1), 0), 1)
	return took
}

// cnpSource sends CNPs before a burst, and one for each packet of it: a reduced rate
// rises again as soon as CNPs stop.
type cnpSource struct{ before, each func() }

// cnpsOf returns a source of this CNP. It sends enough of them before a burst to slow
// down even a device that is far slower than its line.
func (f *flow) cnpsOf(cnp ib.Packet) cnpSource {
	return cnpSource{func() { f.sendCNPs(cnp, 20) }, func() { f.Send(cnp) }}
}

// sendCNPs sends n CNPs at the published interval, and waits until the device has
// processed them.
func (c *Conn) sendCNPs(cnp ib.Packet, n int) {
	c.Sleep(pollLatency)
	for range n {
		c.Send(cnp)
		c.Compute(cnpInterval)
	}
	c.Sync()
}

// Bounds for the duration of a burst. Below flowQuick, the simulator spends no time per
// bit and the rate cannot be measured; above flowSlow, the device or its host is so slow
// that a reduced rate would not show.
const (
	flowQuick = 100 * time.Microsecond
	flowSlow  = time.Millisecond
)

// expectSlower fails the case unless a burst took at least twice as long as before.
func (f *flow) expectSlower(before, after time.Duration) {
	limit := 2 * max(before, flowQuick)
	if after < limit && before > flowSlow {
		rig.Abort(fmt.Errorf("the device takes %v for %d packets without CNPs, and may be slower than the reduced rate: %w", before, flowPackets, conformance.ErrBenchCannot))
	}
	f.Check(after >= limit, fmt.Sprintf("half the rate or less: %v or more for %d packets", limit, flowPackets), "%v", after)
}

// expectSameRate fails the case if a burst took four times as long as before. Reduced
// rates make it far longer, other work of the bench does not.
func (f *flow) expectSameRate(before, after time.Duration) {
	limit := 4 * max(before, flowSlow)
	f.Check(after < limit, fmt.Sprintf("the same rate: less than %v for %d packets", limit, flowPackets), "%v", after)
}
