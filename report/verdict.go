package report

import (
	"cmp"
	"slices"
)

// Verdicts are all of them, the worst first.
func Verdicts() []Verdict { return []Verdict{Broken, Failed, Starved, Skipped, Passed} }

// Bad reports whether a result of this verdict is one that a run fails by.
func (v Verdict) Bad() bool { return v != Passed && v != Skipped }

// Counts says how many results had each verdict.
func (r *Run) Counts() map[Verdict]int {
	n := map[Verdict]int{}
	for i := range r.Scenarios {
		n[r.Scenarios[i].Verdict]++
	}
	return n
}

// Bad are the results that the run fails by, in order; none if it passed.
func (r *Run) Bad() []*Result {
	var bad []*Result
	for i := range r.Scenarios {
		if r.Scenarios[i].Verdict.Bad() {
			bad = append(bad, &r.Scenarios[i])
		}
	}
	return bad
}

// OnlyStarved reports whether the run did not pass for no other reason than that the
// machine was too busy.
func (r *Run) OnlyStarved() bool {
	n := r.Counts()
	return n[Starved] > 0 && n[Starved] == len(r.Bad())
}

// Repeated counts the results that passed when they were repeated after they had been
// starved.
func (r *Run) Repeated() (n int) {
	for i := range r.Scenarios {
		if r.Scenarios[i].First != nil && r.Scenarios[i].Verdict == Passed {
			n++
		}
	}
	return n
}

// tiers are those of the run's results, in the order they first occur.
func (r *Run) tiers() []string {
	var tiers []string
	for i := range r.Scenarios {
		if t := r.Scenarios[i].Tier; !slices.Contains(tiers, t) {
			tiers = append(tiers, t)
		}
	}
	return tiers
}

// LostPackets is how many packets came to nothing, for whatever cause: those that
// were damaged are among them, since nobody takes them. It is what lost means in
// tables and in what scenarios expect.
func (l *Link) LostPackets() uint64 {
	n := l.Corrupted
	for _, c := range l.Lost {
		n += c
	}
	return n
}

// Cause is why packets were lost, and how many.
type Cause struct {
	Name    string
	Packets uint64
}

// damaged is the cause of those losses that only their receiver noticed.
const damaged = "damaged"

// Causes are the causes of loss, the gravest first.
func (l *Link) Causes() []Cause {
	causes := make([]Cause, 0, len(l.Lost)+1)
	if l.Corrupted > 0 {
		causes = append(causes, Cause{damaged, l.Corrupted})
	}
	for name, n := range l.Lost {
		causes = append(causes, Cause{name, n})
	}
	slices.SortFunc(causes, func(a, b Cause) int {
		return cmp.Or(cmp.Compare(b.Packets, a.Packets), cmp.Compare(a.Name, b.Name))
	})
	return causes
}

// FailedChecks names the expectations that were not met.
func (r *Result) FailedChecks() []string {
	var names []string
	for _, c := range r.Checks {
		if !c.OK {
			names = append(names, c.Name)
		}
	}
	return names
}

// Totals are a result's figures, all ranks and links together.
type Totals struct {
	Messages, Bytes, Resent uint64 // by the ranks
	Failures                int
	Packets, Lost           uint64 // by the links
}

// Totals adds up ranks and links.
func (r *Result) Totals() Totals {
	var t Totals
	for i := range r.Ranks {
		k := &r.Ranks[i]
		t.Messages += k.Messages
		t.Bytes += k.Bytes
		t.Resent += k.Resent
		t.Failures += k.Failures
	}
	for i := range r.Links {
		t.Packets += r.Links[i].Packets
		t.Lost += r.Links[i].LostPackets()
	}
	return t
}

// GoodputBps is what was delivered in the time inside the scenario, in bits a
// second, all ranks together; 0 if no time passed.
func (r *Result) GoodputBps() float64 {
	if r.Elapsed <= 0 {
		return 0
	}
	return 8 * float64(r.Totals().Bytes) / r.Elapsed.Seconds()
}
