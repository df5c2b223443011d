package conform

import "slices"

// Verdicts are all of them, the worst first.
func Verdicts() []Verdict { return []Verdict{Broken, Fail, Stale, Deviates, Unsupported, Pass} }

// Bad reports whether a run fails by a result of this verdict.
func (v Verdict) Bad() bool { return v != Pass && v != Unsupported && v != Deviates }

// Counts says how many results had each verdict.
type Counts map[Verdict]int

// Add counts results.
func (c Counts) Add(results []Result) {
	for i := range results {
		c[results[i].Verdict]++
	}
}

// Total is how many results there were.
func (c Counts) Total() (n int) {
	for _, k := range c {
		n += k
	}
	return n
}

// Counts says how many results of all devices had each verdict.
func (r *Run) Counts() Counts {
	c := Counts{}
	for i := range r.Devices {
		c.Add(r.Devices[i].Results)
	}
	return c
}

// Good reports whether nothing is left to be done: every clause that was asked
// about is met, and nothing is wrong with the cases.
func (r *Run) Good() bool {
	for v, n := range r.Counts() {
		if v.Bad() && n > 0 {
			return false
		}
	}
	return len(r.Faults) == 0
}

// Judged is a result and the device that it is of.
type Judged struct {
	Device *Device
	*Result
}

// Bad are the results that the run fails by, in order; none if it passed.
func (r *Run) Bad() (bad []Judged) {
	for i := range r.Devices {
		d := &r.Devices[i]
		for j := range d.Results {
			if d.Results[j].Verdict.Bad() {
				bad = append(bad, Judged{d, &d.Results[j]})
			}
		}
	}
	return bad
}

// Label is what the device is called in the run: by its name, and what it is made to
// behave like.
func (d *Device) Label() string {
	if d.As != "" {
		return d.Name + " as " + d.As
	}
	return d.Name
}

// RowVerdict is what several cases say of one requirement: the worst of them. What
// is not supported says nothing as long as another case does.
func RowVerdict(all []Verdict) Verdict {
	for _, v := range []Verdict{Broken, Fail, Stale, Deviates, Pass, Unsupported} {
		if slices.Contains(all, v) {
			return v
		}
	}
	return ""
}
