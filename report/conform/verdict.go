package conform

import "slices"

// Verdicts lists all verdicts, the worst first.
func Verdicts() []Verdict { return []Verdict{Broken, Fail, Stale, Deviates, Unsupported, Pass} }

// Bad reports whether a result with this verdict fails the run.
func (v Verdict) Bad() bool { return v != Pass && v != Unsupported && v != Deviates }

// Counts are numbers of results by verdict.
type Counts map[Verdict]int

// Add counts results.
func (c Counts) Add(results []Result) {
	for i := range results {
		c[results[i].Verdict]++
	}
}

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
		c.Add(r.Devices[i].Results)
	}
	return c
}

// Good reports whether no result fails the run and no case has a fault.
func (r *Run) Good() bool {
	for v, n := range r.Counts() {
		if v.Bad() && n > 0 {
			return false
		}
	}
	return len(r.Faults) == 0
}

// Judged is a result with its device.
type Judged struct {
	Device *Device
	*Result
}

// Bad returns the results that fail the run, in order.
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

// Label returns the name of the device, with the kernel that it imitates.
func (d *Device) Label() string {
	if d.As != "" {
		return d.Name + " as " + d.As
	}
	return d.Name
}

// RowVerdict returns the verdict of a requirement: the worst of its cases. Unsupported cases
// count only if there are no others.
func RowVerdict(all []Verdict) Verdict {
	for _, v := range []Verdict{Broken, Fail, Stale, Deviates, Pass, Unsupported} {
		if slices.Contains(all, v) {
			return v
		}
	}
	return ""
}
