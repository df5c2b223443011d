package conform

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/internal/cli"
)

// Verdicts lists all verdicts, the worst first.
func Verdicts() []Verdict {
	return []Verdict{Broken, Fail, Stale, Starved, Deviates, Unsupported, Pass}
}

// Bad reports whether a result with this verdict fails the run.
func (v Verdict) Bad() bool { return v != Pass && v != Unsupported && v != Deviates }

// Judged reports whether the verdict says something about the device or the case: not if the case
// is unsupported or starved.
func (v Verdict) Judged() bool { return v != Unsupported && v != Starved }

// Counts are numbers of results by verdict.
type Counts map[Verdict]int

// Total returns the number of results.
func (c Counts) Total() (n int) {
	for _, k := range c {
		n += k
	}
	return n
}

// Counts counts the results of all devices by verdict.
func (r *Run) Counts() Counts {
	c := Counts{}
	for i := range r.Devices {
		for j := range r.Devices[i].Results {
			c[r.Devices[i].Results[j].Verdict]++
		}
	}
	return c
}

// Good reports whether no result fails the run and no case has a fault.
func (r *Run) Good() bool {
	return len(r.Bad()) == 0 && len(r.Faults) == 0
}

// OnlyStarved reports whether starved results are all that fails the run.
func (r *Run) OnlyStarved() bool {
	n := r.Counts()[Starved]
	return n > 0 && n == len(r.Bad()) && len(r.Faults) == 0
}

// Judged is a result with its device.
type Judged struct {
	Device *Device
	*Result
}

// Bad returns the results that fail the run, in order.
func (r *Run) Bad() []Judged { return r.resultsWith(Verdict.Bad) }

// resultsWith returns the results for whose verdict match returns true, in order.
func (r *Run) resultsWith(match func(Verdict) bool) (all []Judged) {
	for i := range r.Devices {
		d := &r.Devices[i]
		for j := range d.Results {
			if match(d.Results[j].Verdict) {
				all = append(all, Judged{d, &d.Results[j]})
			}
		}
	}
	return all
}

// Label returns the name of the device, with the kernel that it imitates.
func (d *Device) Label() string {
	if d.As != "" {
		return d.Name + " as " + d.As
	}
	return d.Name
}

// RowVerdict returns the verdict of a requirement from those of its cases: the worst, but
// Unsupported only if there are no others; empty without cases.
func RowVerdict(all []Verdict) Verdict {
	for _, v := range []Verdict{Broken, Fail, Stale, Starved, Deviates, Pass, Unsupported} {
		if slices.Contains(all, v) {
			return v
		}
	}
	return ""
}

// Levels are the requirement levels, the strongest first.
var Levels = []string{"MUST", "SHOULD", "MAY"}

// Deviating returns the results with the verdict Deviates: known deviations from a requirement,
// for which a reason is given. The strongest requirements come first.
func (r *Run) Deviating() []Judged {
	all := r.resultsWith(func(v Verdict) bool { return v == Deviates })
	slices.SortStableFunc(all, func(a, b Judged) int { return slices.Index(Levels, a.Level) - slices.Index(Levels, b.Level) })
	return all
}

// DeviationCounts counts the deviating results of the run by level, as in "1 MUST, 2 SHOULDs";
// empty if there are none.
func (r *Run) DeviationCounts() string {
	all := r.Deviating()
	var counts []string
	for _, l := range Levels {
		n := 0
		for _, r := range all {
			if r.Level == l {
				n++
			}
		}
		if n > 0 {
			counts = append(counts, cli.Plural(n, l))
		}
	}
	return strings.Join(counts, ", ")
}

// UnsupportedReason is a reason of unsupported cases, with their IDs.
type UnsupportedReason struct {
	Why   string
	Cases []string
}

// UnsupportedReasons returns the reasons of unsupported cases, the most frequent first.
func (d *Device) UnsupportedReasons() []UnsupportedReason {
	cases := make(map[string][]string)
	for i := range d.Results {
		if r := &d.Results[i]; r.Verdict == Unsupported {
			cases[r.Reason] = append(cases[r.Reason], r.ID)
		}
	}
	all := make([]UnsupportedReason, 0, len(cases))
	for _, why := range slices.Sorted(maps.Keys(cases)) {
		all = append(all, UnsupportedReason{why, cases[why]})
	}
	slices.SortStableFunc(all, func(a, b UnsupportedReason) int { return cmp.Compare(len(b.Cases), len(a.Cases)) })
	return all
}

// NotJudgedRow is a requirement that no case of a run judged.
type NotJudgedRow struct{ ID, Level, Why string }

// NotJudged returns the requirements for which the run has results, all of them unsupported, with
// the last reason. It omits those whose last reason is that a device does not claim the feature,
// and returns none for a run of selected cases.
func (r *Run) NotJudged() (rows []NotJudgedRow) {
	if r.Part {
		return nil
	}
	why := make(map[string]string) // by row; empty if a case judged the row
	for i := range r.Devices {
		for k := range r.Devices[i].Results {
			c := &r.Devices[i].Results[k]
			for _, row := range c.Rows {
				if reason, seen := why[row]; c.Verdict != Unsupported {
					why[row] = ""
				} else if !seen || reason != "" {
					why[row] = c.Reason
				}
			}
		}
	}
	for i := range r.Documents {
		for j := range r.Documents[i].Sections {
			for _, row := range r.Documents[i].Sections[j].Rows {
				if why[row.ID] != "" && !strings.HasPrefix(why[row.ID], unclaimedPrefix) {
					rows = append(rows, NotJudgedRow{row.ID, row.Level, why[row.ID]})
				}
			}
		}
	}
	return rows
}

// unclaimedPrefix begins the reason of a case for a feature that the device does not claim.
const unclaimedPrefix = "the device does not claim "

// rowsOfBenchHeaders returns the requirements of passed cases with the label BenchHeaders, if the
// run was in simulation: there the test bench itself writes the headers that these cases check.
func (r *Run) rowsOfBenchHeaders() []string {
	rows := make(map[string]bool)
	for i := range r.Devices {
		for k := range r.Devices[i].Results {
			c := &r.Devices[i].Results[k]
			if r.Tier == "sim" && c.Verdict == Pass && slices.Contains(c.Labels, conformance.BenchHeaders) {
				for _, row := range c.Rows {
					rows[row] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(rows))
}

// measurements returns the number of measurements of all devices.
func (r *Run) measurements() (n int) {
	for i := range r.Devices {
		n += len(r.Devices[i].Measured)
	}
	return n
}

// In formats a value in the unit of the measurement.
func (m *Measured) In(v float64) string {
	switch m.Unit {
	case Microseconds:
		const aDay = 24 * 3600 * 1e6 // longer values are invalid and would overflow
		return cli.Duration(time.Duration(min(max(v, -aDay), aDay) * float64(time.Microsecond)))
	case Nominal:
		return fmt.Sprintf("%.3g ×", v)
	}
	return fmt.Sprintf("%.4g", v)
}

// deviationLine formats a deviating result in one line: Deviation says why the device is known to
// deviate, and Reason what violation the case found.
func (r *Result) deviationLine() string {
	if r.Reason == "" {
		return fmt.Sprintf("deviates from a %s: %s", r.Level, r.Deviation)
	}
	return fmt.Sprintf("deviates from a %s: %s (%s)", r.Level, cmp.Or(r.Deviation, "no reason"), r.Reason)
}
