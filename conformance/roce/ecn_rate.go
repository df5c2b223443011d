package roce

import (
	"fmt"
	"strings"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var congestionCases = overRC.Cases([]conformance.Case{{
	ID: "ecn/rate/named-qp-slows", Cite: annexA17("CA17-45", "roce/ecn/3"), Needs: verbs.CapCongestion,
	Run: onFlow(func(f *flow) {
		before := f.burst()
		f.expectSlower(before, f.burstWith(f.cnpsOf(ib.CNP())))
	}),
}, {
	ID: "ecn/rate/other-qps-keep-theirs", Cite: annexA17("CA17-45", "roce/ecn/3"), Needs: verbs.CapCongestion,
	Run: OnPort(func(p *Port) {
		named, other := p.newFlow(peerQPN), p.newFlow(peerQPN+1)
		before := other.burst()
		other.expectSameRate(before, other.burstWith(named.cnpsOf(ib.CNP())))
	}),
}, {
	ID:   "ecn/rate/comes-back",
	Cite: annexA17("CA17-46", "roce/ecn/4"), Level: conformance.Should, Needs: verbs.CapCongestion,
	Run: onFlow(func(f *flow) {
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
	Run: OnPort(func(p *Port) {
		for _, due := range []uint32{firstPeerPSN, 0, 0xffff00} {
			c := p.connect(Setup{Receives: 1, Modify: func(a *verbs.QPAttr) { a.RQPSN = due }})
			c.expectDropped(ib.CNP())
			c.expectAccepted(0)
		}
	}),
}, {
	ID: "ecn/drop/cnp-for-nobody-slows-nobody", Cite: ibta("", "roce/ecn/5"), Needs: verbs.CapCongestion,
	Run: onFlow(func(f *flow) {
		before := f.burst()
		f.expectSameRate(before, f.burstWith(f.cnpsOf(ib.CNP().To(0xabcdef))))
		f.expectSilence(shortWait)
	}),
}, {
	ID: "ecn/drop/cnp-with-wrong-icrc-slows-nobody", Cite: ibta("", "roce/ecn/5"), Needs: verbs.CapCongestion,
	Run: onFlow(func(f *flow) {
		before := f.burst()
		f.expectSameRate(before, f.burstWith(f.cnpsOf(ib.CNP().BadICRC())))
		f.expectSilence(shortWait)
	}),
}, {
	ID:   "ecn/count/cnps-sent-agree-with-the-wire",
	Cite: conformance.Cite{Doc: "Lumina", Rows: []string{"roce/ecn/7"}}, Level: conformance.Should,
	Needs: verbs.CapCongestion,
	Run: onConn(Setup{}, func(c *Conn) {
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
	Run: onConn(Setup{signalAll: true}, func(c *Conn) {
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
