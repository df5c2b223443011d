package report

import (
	"cmp"
	"slices"
)

// Verdicts lists all verdicts, the worst first.
func Verdicts() []Verdict { return []Verdict{Broken, Failed, Starved, Skipped, Passed} }

// Bad reports whether a result with this verdict fails the run.
func (v Verdict) Bad() bool { return v != Passed && v != Skipped }

// Counts returns the number of results by verdict.
func (r *Run) Counts() map[Verdict]int {
	n := map[Verdict]int{}
	for i := range r.Scenarios {
		n[r.Scenarios[i].Verdict]++
	}
	return n
}

// Bad returns the results that fail the run, in order.
func (r *Run) Bad() []*Result {
	var bad []*Result
	for i := range r.Scenarios {
		if r.Scenarios[i].Verdict.Bad() {
			bad = append(bad, &r.Scenarios[i])
		}
	}
	return bad
}

// OnlyStarved reports whether there are bad results, and all of them are starved.
func (r *Run) OnlyStarved() bool {
	n := r.Counts()
	return n[Starved] > 0 && n[Starved] == len(r.Bad())
}

// RepeatedCount counts the results that passed in a second attempt, after one that lacked CPU time.
func (r *Run) RepeatedCount() (n int) {
	for i := range r.Scenarios {
		if r.Scenarios[i].First != nil && r.Scenarios[i].Verdict == Passed {
			n++
		}
	}
	return n
}

// tiers returns the tiers (sim or netns) of the results, in the order of first occurrence.
func (r *Run) tiers() []string {
	var tiers []string
	for i := range r.Scenarios {
		if t := r.Scenarios[i].Tier; !slices.Contains(tiers, t) {
			tiers = append(tiers, t)
		}
	}
	return tiers
}

// LostPackets returns the number of packets lost for any cause, including corrupted ones.
// Tables and the expectations of scenarios use this number.
func (l *Link) LostPackets() uint64 {
	n := l.Corrupted
	for _, c := range l.Lost {
		n += c
	}
	return n
}

// Cause is a cause of packet loss with its count.
type Cause struct {
	Name    string
	Packets uint64
}

// Causes returns the causes of loss, corruption among them, the most frequent first.
func (l *Link) Causes() []Cause {
	causes := make([]Cause, 0, len(l.Lost)+1)
	if l.Corrupted > 0 {
		causes = append(causes, Cause{"damaged", l.Corrupted})
	}
	for name, n := range l.Lost {
		causes = append(causes, Cause{name, n})
	}
	slices.SortFunc(causes, func(a, b Cause) int {
		return cmp.Or(cmp.Compare(b.Packets, a.Packets), cmp.Compare(a.Name, b.Name))
	})
	return causes
}

// FailedChecks returns the names of the unmet expectations.
func (r *Result) FailedChecks() []string {
	var names []string
	for _, c := range r.Checks {
		if !c.OK {
			names = append(names, c.Name)
		}
	}
	return names
}

// Totals are sums over all ranks and links of a result.
type Totals struct {
	Messages, Bytes, Resent uint64 // by the ranks
	Failures                int
	Packets, Lost           uint64 // by the links
}

// Totals sums up ranks and links.
func (r *Result) Totals() Totals {
	var t Totals
	for i := range r.Ranks {
		rank := &r.Ranks[i]
		t.Messages += rank.Messages
		t.Bytes += rank.Bytes
		t.Resent += rank.Resent
		t.Failures += rank.Failures
	}
	for i := range r.Links {
		t.Packets += r.Links[i].Packets
		t.Lost += r.Links[i].LostPackets()
	}
	return t
}

// GoodputBps returns the bytes delivered to all ranks divided by Elapsed, in bits per second;
// 0 if Elapsed is 0.
func (r *Result) GoodputBps() float64 {
	if r.Elapsed <= 0 {
		return 0
	}
	return 8 * float64(r.Totals().Bytes) / r.Elapsed.Seconds()
}
