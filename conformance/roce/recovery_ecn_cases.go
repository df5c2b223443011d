package roce

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var recoveryECNCases = conformance.Group{Needs: verbs.CapCongestion}.Cases([]conformance.Case{{
	ID:   "recovery/cnp/follows-the-mark",
	Cite: conformance.Cite{Doc: "Annex A17", Section: "CA17-44", Rows: []string{"roce/ecn/1"}},
	Run: judging(cnpGeneration, func(p *Port, all []Measurement) {
		checkReaction(p, byName(all, "cnp/generation"), promptLimit(p), "a CNP at once")
		checkAtMost(p, byName(all, "cnp/for-a-mark"), 1, "one CNP for a mark")
	}),
}, {
	ID:   "recovery/cnp/keep-a-distance",
	Cite: conformance.Cite{Doc: "Annex A17", Section: "CA17-44", Rows: []string{"roce/ecn/2"}}, Level: conformance.May,
	Run: judging(cnpPacing, judgePacing),
}, {
	ID:   "recovery/cnp/one-queue-pair-does-not-silence-another",
	Cite: conformance.Cite{Doc: "Annex A17", Section: "CA17-44", Rows: []string{"roce/ecn/1"}},
	Run: judging(cnpScope, func(p *Port, all []Measurement) {
		checkAtLeast(p, byName(all, "cnp/two-qps-of-a-peer"), 2, "a CNP for each queue pair")
		checkAtLeast(p, byName(all, "cnp/qp-of-another-peer"), 1, "a CNP for each queue pair")
	}),
}, {
	ID:   "recovery/cnp/none-for-losses",
	Cite: conformance.Cite{Doc: "Annex A17", Section: "CA17-44", Rows: []string{"roce/ecn/1"}},
	Run: OnPort(func(p *Port) {
		c := p.Connect(Setup{})
		for i := range 10 {
			c.Send(writePacket(c, i+1))
			c.Await("a sequence NAK", isSequenceNAK)
			c.Send(writePacket(c, i))
			awaitAck(c, i)
		}
		for _, a := range p.Drain(maxCNPInterval) {
			c.Check(!isCNP(&a), "no CNP without a marked packet", "%v", a.Packet)
		}
	}),
}, {
	ID:    "recovery/rate/falls-and-comes-back",
	Cite:  conformance.Cite{Doc: "Annex A17", Section: "CA17-45/46", Rows: []string{"roce/ecn/3", "roce/ecn/4"}},
	Level: conformance.Should,
	Run:   judging(rates, judgeRates),
}})

// judgePacing counts CNPs. It checks their intervals in virtual time only: on a real
// network, queues change the intervals.
func judgePacing(p *Port, all []Measurement) {
	const dense = 10 // us: shorter than any device's CNP interval
	apart, cnps := byName(all, "cnp/marks-apart"), byName(all, fmt.Sprintf("cnp/for-%d-marks", marks))
	if apart.Value > dense && cnps.Value > marks/2 {
		rig.Abort(fmt.Errorf("marked packets are %.4g us apart on this bench, and each may get a CNP: %w", apart.Value, conformance.ErrBenchCannot))
	}
	p.Check(cnps.Value >= 1, "a CNP", "none for %d marks", marks)
	checkAtMost(p, cnps, marks/2, "fewer CNPs than marks")
	if p.Virtual && cnps.Value > 1 {
		checkAtLeast(p, byName(all, "cnp/apart"), 2*apart.Value, "CNPs at a minimum interval")
	}
}

// judgeRates reports unsupported for a device that is slow without CNPs, or runs on a busy
// host: the effect of CNPs cannot be measured then.
func judgeRates(p *Port, all []Measurement) {
	before, ten := byName(all, "rate/burst/before"), byName(all, "rate/burst/behind-ten")
	if before.Value > us(time.Millisecond) && ten.Value < 2*before.Value {
		rig.Abort(fmt.Errorf("the device takes %.4g us for %d packets without CNPs, which hides their effect: %w", before.Value, burstPackets, conformance.ErrBenchCannot))
	}
	p.Check(ten.Value > before.Value+10, "bursts that take longer after ten CNPs than before", "%.4g us before, %.4g us after them", before.Value, ten.Value)
	p.Check(all[len(all)-1].Name == "rate/comes-back", fmt.Sprintf("bursts as short as before within %v", p.ResponseTimeout()), "longer ones: %.4g us before", before.Value)
}
