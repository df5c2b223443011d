package conform

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/internal/textfmt"
)

// levels are the requirement levels, the strongest first.
var levels = []string{"MUST", "SHOULD", "MAY"}

// Deviating returns the results with a deviation on record, the strongest requirements
// first.
func (r *Run) Deviating() (all []Judged) {
	for i := range r.Devices {
		d := &r.Devices[i]
		for j := range d.Results {
			if d.Results[j].Verdict == Deviates {
				all = append(all, Judged{d, &d.Results[j]})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b Judged) int { return slices.Index(levels, a.Level) - slices.Index(levels, b.Level) })
	return all
}

// countByLevel counts deviations by level: "1 MUST, 2 SHOULDs"; empty if there are none.
func countByLevel(all []Judged) string {
	var counts []string
	for _, l := range levels {
		n := 0
		for _, r := range all {
			if r.Level == l {
				n++
			}
		}
		if n > 0 {
			counts = append(counts, textfmt.Plural(n, l))
		}
	}
	return strings.Join(counts, ", ")
}

// DeviationCounts counts the deviations of the run by level; empty if there are none.
func (r *Run) DeviationCounts() string { return countByLevel(r.Deviating()) }

// Unasked is a reason of unsupported cases, with their number.
type Unasked struct {
	Why   string
	Cases []string
}

// Unasked returns the reasons of the device's unsupported cases, the most frequent first.
func (d *Device) Unasked() []Unasked {
	cases := make(map[string][]string)
	for i := range d.Results {
		if r := &d.Results[i]; r.Verdict == Unsupported {
			cases[r.Reason] = append(cases[r.Reason], r.ID)
		}
	}
	all := make([]Unasked, 0, len(cases))
	for _, why := range slices.Sorted(maps.Keys(cases)) {
		all = append(all, Unasked{why, cases[why]})
	}
	slices.SortStableFunc(all, func(a, b Unasked) int { return cmp.Compare(len(b.Cases), len(a.Cases)) })
	return all
}

// measured returns the number of measurements.
func (r *Run) measured() (n int) {
	for i := range r.Devices {
		n += len(r.Devices[i].Measured)
	}
	return n
}

// In formats a number in the unit of a measurement.
func (m *Measured) In(v float64) string {
	switch m.Unit {
	case Microseconds:
		const aDay = 24 * 3600 * 1e6 // longer values are invalid and would overflow
		return textfmt.Duration(time.Duration(min(max(v, -aDay), aDay) * float64(time.Microsecond)))
	case Nominal:
		return fmt.Sprintf("%.3g ×", v)
	}
	return fmt.Sprintf("%.4g", v)
}

// deviation formats the deviation of a result in one line.
func (r *Result) deviation() string {
	if r.Reason == "" {
		return fmt.Sprintf("deviates from a %s: %s", r.Level, r.Deviation)
	}
	return fmt.Sprintf("deviates from a %s: %s (%s)", r.Level, cmp.Or(r.Deviation, "no reason"), r.Reason)
}
