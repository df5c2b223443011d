package recovery

import (
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rcpeer"
	"github.com/fabrictest/fabrictest/verbs"
)

// Cases returns the cases.
func Cases() []conformance.Case {
	all := slices.Concat(lossCases, congestionCases)
	for i := range all {
		all[i].Labels = []string{"service:rc"}
		all[i].Needs |= verbs.CapRC
	}
	return all
}

func ibta(section string, rows ...string) conformance.Cite {
	return conformance.Cite{Doc: "IBTA", Section: section, Rows: rows}
}

// on makes the body of a case from a probe and what is demanded of its measurements.
func on(run func(*rcpeer.Port) []Measurement, judge func(*rcpeer.Port, []Measurement)) func(*conformance.Bench) error {
	return rcpeer.On(func(p *rcpeer.Port) { judge(p, note(p, run(p))) })
}

// within ends the case unless all samples are at most so large.
func within(p *rcpeer.Port, m *Measurement, most float64, want string) {
	p.Check(m.Most() <= most, fmt.Sprintf("%s: %s at most %.4g %s", want, m.Name, most, m.Unit), "%.4g", m.Most())
}

// atLeast ends the case unless all samples are at least so large.
func atLeast(p *rcpeer.Port, m *Measurement, least float64, want string) {
	p.Check(m.Least() >= least, fmt.Sprintf("%s: %s at least %.4g %s", want, m.Name, least, m.Unit), "%.4g", m.Least())
}

func us(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// typical judges a time of the device's: by its longest sample where time is virtual,
// and by the median where it is real, for a computer that is busy makes some long.
func typical(p *rcpeer.Port, m *Measurement, most time.Duration, want string) {
	took := m.Most()
	if !p.Virtual {
		took = m.Value
	}
	p.Check(took <= us(most), fmt.Sprintf("%s: %s at most %v", want, m.Name, most), "%.4g us", took)
}

// nominal is how far a timer may be from its code: never early, and at most four times
// late, each time. See typical for where time is real: there it is judged by the best of
// the first samples and the best of the last, so that a timer which grows still shows.
func nominal(p *rcpeer.Port, m *Measurement) {
	if p.Virtual {
		atLeast(p, m, 1, "no repetition before the timeout")
	} else {
		// A sample is the time between two packets as they were seen, and the second may
		// have been quicker on its way than the first. What the one lacks the one before
		// has too much: together they are not short.
		sum := 0.0
		for i, took := range m.Samples {
			sum += took
			n := float64(i + 1)
			p.Check(sum >= 0.97*n, fmt.Sprintf("no repetition before the timeout: %s at least 0.97 %s", m.Name, m.Unit), "%.4g for the first %d together", sum/n, i+1)
		}
	}
	late := m.Most()
	if half := len(m.Samples) / 2; !p.Virtual {
		late = max(slices.Min(m.Samples[:half]), slices.Min(m.Samples[half:]))
	}
	p.Check(late <= 4, fmt.Sprintf("a repetition within four timeouts: %s", m.Name), "%.4g timeouts", late)
}

// prompt is how soon everything happens that waits for no timer: a tenth of the
// timeout that a reaction is measured under.
func prompt(p *rcpeer.Port) time.Duration { return ib.AckTimeout(reactionTimer(p)) / 10 }

var lossCases = []conformance.Case{
	{
		ID:    "recovery/nak/one-for-each-gap",
		Title: "Each gap is told by one NAK, however many packets come behind it",
		Cite:  ibta("error class B", "roce/rc/psn/6", "roce/rc/psn/7"), Level: conformance.Must,
		Sends:   "again and again, four packets behind a gap, and the one that was missing",
		Expects: "one sequence NAK for each gap, with the PSN that is missing",
		Mutants: []string{"NAKStorm", "NAKOnlyOnce"},
		Run: on(nakGeneration, func(p *rcpeer.Port, all []Measurement) {
			within(p, find(all, "nak/for-a-gap"), 1, "one NAK for a gap")
		}),
	},
	{
		ID:    "recovery/nak/follows-the-gap",
		Title: "A gap is told when it is seen, and not by a timer",
		Cite:  ibta("error class B", "roce/rc/psn/5"), Level: conformance.Must,
		Sends:   "packets behind gaps",
		Expects: "a sequence NAK for each within 6.7 ms, or 54 ms in real time, typically",
		Mutants: []string{"NAKLate"},
		Run: on(nakGeneration, func(p *rcpeer.Port, all []Measurement) {
			typical(p, find(all, "nak/generation"), prompt(p), "a NAK at once")
		}),
	},
	{
		ID:    "recovery/nak/starts-the-repetition",
		Title: "A NAK is followed by the packet that it asks for, wherever in the window that is, and not by a timer",
		Cite:  ibta("9.7.5", "roce/rc/tmo/8"), Level: conformance.Must,
		Sends:   "to windows of eight packets, a sequence NAK for the first, one in the middle, or the last; the timeout is 67 ms, or 0.5 s in real time",
		Expects: "that packet within a tenth of the timeout, typically",
		Mutants: []string{"NAKWaitsForTimer"},
		Run: on(nakReaction, func(p *rcpeer.Port, all []Measurement) {
			for i := range all {
				typical(p, &all[i], prompt(p), "a reaction that waits for no timer")
			}
		}),
	},
	{
		ID:    "recovery/nak/second-loss-of-a-window",
		Title: "A second NAK, for a later loss in the same window, is followed by the packet that it asks for",
		Cite:  ibta("", "roce/rc/tmo/9"), Level: conformance.Should,
		Sends:   "to a window of eight packets, sequence NAKs for the third and, when that has come, for the sixth",
		Expects: "each of them within a tenth of the timeout",
		Mutants: []string{"IgnoreSecondNAK"},
		Run: rcpeer.On(func(p *rcpeer.Port) {
			c := p.Connect(rcpeer.Setup{Change: rcpeer.Timer(reactionTimer(p))})
			c.Post(c.QP, c.Writing(1, window))
			c.Take(window)
			for _, lost := range []int{2, 5} {
				sent := c.Put(ib.Nak(c.SQ(lost), ib.NakSequence, 0))
				took := resent(c, lost).At - sent
				c.Check(took <= prompt(p), fmt.Sprintf("packet %d of the window again within %v of its NAK", lost, prompt(p)), "after %v", took)
				c.Drain(0)
			}
			finish(c, window, 1)
		}),
	},
	{
		ID:    "recovery/loss/seen-gaps-wait-for-no-timer",
		Title: "A packet that was lost in front of others is replaced without waiting for the timer, with the same bytes",
		Cite:  ibta("9.7.5", "roce/rc/tmo/7", "roce/rc/tmo/8"), Level: conformance.Must,
		Sends:   "what a responder answers to windows of eight packets of which the first, or one in the middle, was lost",
		Expects: "the lost packet again, sooner than after the timeout",
		Mutants: []string{"NAKWaitsForTimer", "RetryRestartsMessage"},
		Run: on(lossRecovery, func(p *rcpeer.Port, all []Measurement) {
			for _, place := range []string{"first", "middle"} {
				typical(p, find(all, "loss/"+place+"/retransmission"), ib.AckTimeout(lossTimer(p))/2, "a repetition by NAK")
			}
		}),
	},
	{
		ID:    "recovery/loss/last-packet-by-the-timer",
		Title: "The last packet of a window, if it is lost, is sent again when the timer expires: not before, and soon after",
		Cite:  ibta("C9-140", "roce/rc/tmo/1", "roce/rc/tmo/2"), Level: conformance.Must,
		Sends:   "nothing to windows of eight packets of which the last was lost",
		Expects: "that packet again after one timeout at least, and four at most",
		Mutants: []string{"AdaptiveTimeout", "NoTransportTimer"},
		Run: on(lossRecovery, func(p *rcpeer.Port, all []Measurement) {
			nominal(p, find(all, "loss/last/timeout"))
		}),
	},
	{
		ID:    "recovery/loss/of-what-was-sent-again",
		Title: "A packet that is lost again when it is repeated comes a third time, by the timer",
		Cite:  ibta("C9-139", "roce/rc/tmo/1", "roce/rc/tmo/14"), Level: conformance.Must,
		Sends:   "to a window of eight packets a sequence NAK for the fourth, and nothing to what comes again",
		Expects: "the fourth packet once more, not before a timeout has passed",
		Mutants: []string{"NoTransportTimer", "AdaptiveTimeout"},
		Run: rcpeer.On(func(p *rcpeer.Port) {
			code := lossTimer(p)
			c := p.Connect(rcpeer.Setup{Change: rcpeer.Timer(code)})
			c.Post(c.QP, c.Writing(1, window))
			c.Take(window)
			told := c.Put(ib.Nak(c.SQ(3), ib.NakSequence, 0))
			resent(c, 3)
			took := resent(c, 3).At - told
			c.Check(took >= ib.AckTimeout(code), fmt.Sprintf("a second repetition not before %v", ib.AckTimeout(code)), "after %v", took)
			finish(c, window, 1)
		}),
	},
	{
		ID:    "recovery/timeout/never-early-hardly-late",
		Title: "However often a request is repeated, a timeout is never shorter than its code says, and at most four times as long",
		Cite:  ibta("C9-140", "roce/rc/tmo/2"), Level: conformance.Must,
		Sends:   "nothing to SENDs with timeouts of 0.5, 4.2 and 16.8 ms",
		Expects: "seven repetitions of each, one to four timeouts apart",
		Mutants: []string{"AdaptiveTimeout", "JiffyTimers", "TimeoutBacksOff"},
		Run: on(timeouts, func(p *rcpeer.Port, all []Measurement) {
			for i := range all {
				nominal(p, &all[i])
			}
		}),
	},
	{
		ID:    "recovery/read/asks-for-what-is-missing",
		Title: "When a response to a READ was lost, the READ asks again from there or before, and ends with the right bytes",
		Cite:  ibta("9.4.4", "roce/rc/read/10", "roce/rc/read/11"), Level: conformance.Must,
		Sends:   "all responses to READs of eight but the first, one in the middle, or the last; then what is asked for",
		Expects: "a READ whose PSN, address and length name the missing responses, within four timeouts, and success with the right bytes",
		Mutants: []string{"ReadRetryFromStart", "LastCompletesRead"},
		Run: on(readRecovery, func(p *rcpeer.Port, all []Measurement) {
			for _, place := range places {
				typical(p, find(all, "read/"+place.name+"/reaction"), 4*ib.AckTimeout(lossTimer(p)), "a READ for what is missing")
			}
		}),
	},
	{
		ID:    "recovery/read/implied-nak",
		Title: "An ACK for what is behind a READ that was not answered makes the requester ask again",
		Cite:  ibta("", "roce/rc/ack/5"), Level: conformance.Must,
		Sends:   "an ACK for a SEND behind a READ, and no answer to the READ",
		Expects: "the READ again within four timeouts, and success for both when it is answered",
		Mutants: []string{"AckSkipsRead"},
		Run: on(impliedNAK, func(p *rcpeer.Port, all []Measurement) {
			typical(p, find(all, "read/implied-nak"), 4*ib.AckTimeout(lossTimer(p)), "a READ again")
		}),
	},
	{
		ID:    "recovery/rnr/waits-as-long-as-told",
		Title: "After an RNR NAK a requester waits at least as long as it was told, each time",
		Cite:  ibta("Table 45", "roce/rc/rnr/5"), Level: conformance.Must,
		Sends:   "RNR NAKs of 10 us, 0.64 ms, 10.24 ms and 61.44 ms, four of each",
		Expects: "the SEND again, and never before that time",
		Mutants: []string{"RNRNoWait", "RNRTimerTypo"},
		Run: on(rnrWaits, func(p *rcpeer.Port, all []Measurement) {
			for i := range all {
				atLeast(p, &all[i], 1, "no repetition before the time told")
			}
		}),
	},
}
