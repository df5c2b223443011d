package recovery

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rcpeer"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var congestionCases = []conformance.Case{
	{
		ID:    "recovery/cnp/follows-the-mark",
		Title: "A mark is answered with a CNP at once, and with one",
		Cite:  conformance.Cite{Doc: "Annex A17", Section: "CA17-44", Rows: []string{"roce/ecn/1"}}, Level: conformance.Must, Needs: verbs.CapCongestion,
		Sends:   "marked packets, far from each other",
		Expects: "one CNP for each, within 6.7 ms typically",
		Mutants: []string{"NoCongestion", "CNPLate"},
		Run: on(cnpGeneration, func(p *rcpeer.Port, all []Measurement) {
			typical(p, find(all, "cnp/generation"), prompt(p), "a CNP at once")
			within(p, find(all, "cnp/for-a-mark"), 1, "one CNP for a mark")
		}),
	},
	{
		ID:    "recovery/cnp/keep-a-distance",
		Title: "Of a dense stream of marks only some are answered with CNPs, which keep a distance",
		Cite:  conformance.Cite{Doc: "Annex A17", Section: "CA17-44", Rows: []string{"roce/ecn/2"}}, Level: conformance.May, Needs: verbs.CapCongestion,
		Sends:   "500 marked packets as densely as the bench can send them",
		Expects: "one CNP for two marks at most; in virtual time no two CNPs closer than two marks",
		Mutants: []string{"CNPBurst"},
		Run:     on(cnpPacing, judgePacing),
	},
	{
		ID:    "recovery/cnp/one-queue-pair-does-not-silence-another",
		Title: "The distance between CNPs is kept for each queue pair by itself",
		Cite:  conformance.Cite{Doc: "Annex A17", Section: "CA17-44", Rows: []string{"roce/ecn/1"}}, Level: conformance.Must, Needs: verbs.CapCongestion,
		Sends:   "at once, a marked packet to each of three queue pairs, of which two have the same peer",
		Expects: "a CNP for each",
		Mutants: []string{"CNPPerPort", "CNPPerPeer"},
		Run: on(cnpScope, func(p *rcpeer.Port, all []Measurement) {
			atLeast(p, find(all, "cnp/two-qps-of-a-peer"), 2, "a CNP for each queue pair")
			atLeast(p, find(all, "cnp/qp-of-another-peer"), 1, "a CNP for each queue pair")
		}),
	},
	{
		ID:    "recovery/cnp/none-for-losses",
		Title: "Losses are told by NAKs, and no CNP goes with them",
		Cite:  conformance.Cite{Doc: "Annex A17", Section: "CA17-44", Rows: []string{"roce/ecn/1"}}, Level: conformance.Must, Needs: verbs.CapCongestion,
		Sends:   "ten gaps, one after the other, and what was missing; none of it is marked",
		Expects: "NAKs and ACKs, and no CNP",
		Mutants: []string{"CNPOnNAK"},
		Run: rcpeer.On(func(p *rcpeer.Port) {
			c := p.Connect(rcpeer.Setup{})
			for i := range 10 {
				c.Put(write(c, i+1))
				c.Await("a sequence NAK", isSequenceNAK)
				c.Put(write(c, i))
				acknowledged(c, i)
			}
			for _, a := range p.Drain(cnpPause) {
				c.Check(!isCNP(&a), "no CNP where nothing is marked", "%v", a.Packet)
			}
		}),
	},
	{
		ID:    "recovery/rate/falls-and-comes-back",
		Title: "CNPs make a queue pair slower, each a little more, and its rate comes back when they end",
		Cite:  conformance.Cite{Doc: "Annex A17", Section: "CA17-45/46", Rows: []string{"roce/ecn/3", "roce/ecn/4"}}, Level: conformance.Should, Needs: verbs.CapCongestion,
		Sends:   "one CNP, then ten, to a queue pair that sends in bursts of 60 packets; then none",
		Expects: "longer bursts behind ten CNPs than before, and short ones again in time",
		Mutants: []string{"NoCongestion", "RateNeverRecovers"},
		Run:     on(rates, judgeRates),
	},
}

// judgePacing counts CNPs. How far they are apart is seen in virtual time only: else
// they may have waited for each other on their way.
func judgePacing(p *rcpeer.Port, all []Measurement) {
	const dense = 10 // us: closer than any device paces
	apart, cnps := find(all, "cnp/marks-apart"), find(all, fmt.Sprintf("cnp/for-%d-marks", marks))
	if apart.Value > dense && cnps.Value > marks/2 {
		rig.End(fmt.Errorf("marks are %.4g us apart on this bench, and may be answered one by one: %w", apart.Value, conformance.ErrCannot))
	}
	p.Check(cnps.Value >= 1, "a CNP", "none for %d marks", marks)
	within(p, cnps, marks/2, "CNPs that share marks")
	if p.Virtual && cnps.Value > 1 {
		atLeast(p, find(all, "cnp/apart"), 2*apart.Value, "CNPs that keep a distance")
	}
}

// judgeRates leaves alone a device that is slow by itself, or on a busy computer: its
// rate says nothing then.
func judgeRates(p *rcpeer.Port, all []Measurement) {
	before, ten := find(all, "rate/burst/before"), find(all, "rate/burst/behind-ten")
	if before.Value > us(time.Millisecond) && ten.Value < 2*before.Value {
		rig.End(fmt.Errorf("the device takes %.4g us for %d packets by itself, which hides what it was told: %w", before.Value, burstPackets, conformance.ErrCannot))
	}
	p.Check(ten.Value > before.Value+10, "bursts that take longer behind ten CNPs than before", "%.4g us before, and %.4g us behind them", before.Value, ten.Value)
	p.Check(all[len(all)-1].Name == "rate/comes-back", fmt.Sprintf("bursts as short as before within %v", p.Patience()), "longer ones: %.4g us before", before.Value)
}
