package experiment

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/mpi/work"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios"
)

// judgeAll returns all figures of the scenario, each with its simulated value and whether that
// agrees with the published one.
func (m *measured) judgeAll() (all []report.Figure, err error) {
	for i := range m.Figures {
		f, err := m.judge(i)
		if err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	return all, nil
}

// judge returns figure i of the scenario, with its simulated value and whether that agrees with the
// published one. The units of both must be equal.
func (m *measured) judge(i int) (report.Figure, error) {
	f := &m.Figures[i]
	ours, unit, err := m.evaluate(&f.Measure)
	if err == nil && unit != f.Published.Unit {
		err = fmt.Errorf("the unit of the figure is %s, and not %s", unit, f.Published.Unit)
	}
	if err != nil {
		return report.Figure{}, m.scenario.Errorf(fmt.Sprintf("experiment.figures[%d].measure.figure", i), "%w", err)
	}
	return report.Figure{
		Row: f.Row, Text: f.Text, Published: f.Published.Describe(), Where: f.Published.Where,
		Ours: ours, Unit: unit, Agrees: ours != nil && agrees(f, *ours), Reason: f.Differs,
	}, nil
}

// Tolerances of published numbers.
const (
	tolerance      = 0.15 // relative
	minPercentages = 2    // percentage points, at least, of reductions and increases
)

// agrees reports whether our value has the relation p.Op to the published value, or is in the
// published range. Ranges and the relations =, ~ and up_to have a margin (tolerance).
func agrees(f *scenarios.Figure, ours float64) bool {
	p := &f.Published
	margin := func(published float64) float64 {
		least := 0.0
		if f.Measure.Kind == scenarios.Reduction || f.Measure.Kind == scenarios.Increase {
			least = minPercentages
		}
		return max(tolerance*math.Abs(published), least)
	}
	if p.Range != nil {
		return ours >= p.Range[0]-margin(p.Range[0]) && ours <= p.Range[1]+margin(p.Range[1])
	}
	switch value := *p.Value; p.Op {
	case "<":
		return ours < value
	case "<=", "low":
		return ours <= value
	case ">":
		return ours > value
	case ">=", "high":
		return ours >= value
	case "flat":
		return math.Abs(ours) <= value
	default: // "=", "~", "up_to"
		return math.Abs(ours-value) <= margin(value)
	}
}

// check returns a figure as a check of the result. A figure with a reason to differ ("differs" in
// the scenario) must differ: if it agrees, the check fails.
func check(f *report.Figure) report.Check {
	c := report.Check{Name: f.Row, Want: f.Published, Got: f.OursText(), OK: f.OK()}
	switch {
	case f.Reason == "":
	case f.Agrees:
		c.Want = "a difference from " + c.Want + ", as \"differs\" says"
	default:
		c.Got += ", a known difference"
	}
	return c
}

// evaluate returns the value of a measure and its unit. Three kinds of measures have a point of the
// axis as value, or nil if there is none: for Crossover the first point from which on variant To is
// better than From; for Until the last point up to which it is; for BestAt the point of the largest
// reduction. Other kinds have the value of the curve at ms.Point, or the largest or smallest.
func (m *measured) evaluate(ms *scenarios.Measure) (*float64, string, error) {
	all, unit, err := m.curve(ms)
	if err != nil {
		return nil, "", err
	}
	var x, y []float64 // of the points within ms.Within
	for _, i := range m.Vary.Within(&ms.Within) {
		x, y = append(x, m.points[i].X()), append(y, all[i])
	}
	isBetter := func(reduction float64) bool { return reduction > 0 }
	at := func(i int) *float64 { // the x of a point; nil if there is none
		if i < 0 || i >= len(x) {
			return nil
		}
		return &x[i]
	}
	switch ms.Kind {
	case scenarios.Crossover:
		first := len(y)
		for first > 0 && isBetter(y[first-1]) {
			first--
		}
		return at(first), m.Vary.Unit(), nil
	case scenarios.Until:
		end := slices.IndexFunc(y, func(v float64) bool { return !isBetter(v) })
		if end < 0 {
			end = len(y)
		}
		return at(end - 1), m.Vary.Unit(), nil
	case scenarios.BestAt:
		return at(slices.Index(y, slices.Max(y))), m.Vary.Unit(), nil
	}
	v := 0.0
	switch ms.Over {
	case "largest":
		v = slices.Max(y)
	case "smallest":
		v = slices.Min(y)
	default:
		v = all[slices.Index(m.points, ms.Point)]
	}
	return &v, unit, nil
}

// curve returns the values of a measure over the x axis: those of variant Of, or a comparison of
// variant To with From, from which that of the variants Beyond, if any, is subtracted. For kinds that
// find a point of the x axis (crossover, until, best_at) they are reductions in per cent.
func (m *measured) curve(ms *scenarios.Measure) (y []float64, unit string, err error) {
	if ms.Kind == scenarios.Value {
		return m.series(ms.Of, ms.Figure)
	}
	y, unit, err = m.compare(ms.Kind, ms.Figure, scenarios.Comparison{From: ms.From, To: ms.To})
	if err != nil || ms.Beyond.From == "" {
		return y, unit, err
	}
	others, _, err := m.compare(ms.Kind, ms.Figure, ms.Beyond)
	for i := range others {
		y[i] -= others[i]
	}
	return y, unit, err
}

// compare compares a figure of two variants over the x axis, as kind says. For kinds that find a
// point of the x axis the values are reductions in per cent.
func (m *measured) compare(kind, figure string, variants scenarios.Comparison) (y []float64, unit string, err error) {
	from, unit, err := m.series(variants.From, figure)
	if err != nil {
		return nil, "", err
	}
	to, _, err := m.series(variants.To, figure)
	if err != nil {
		return nil, "", err
	}
	switch kind {
	case scenarios.Difference: // has the unit of the figure
	case scenarios.Ratio:
		unit = "x"
	default:
		unit = "%"
	}
	for i := range from {
		switch kind {
		case scenarios.Difference:
			y = append(y, from[i]-to[i])
		case scenarios.Ratio:
			y = append(y, from[i]/to[i])
		case scenarios.Increase:
			y = append(y, 100*(to[i]/from[i]-1))
		default:
			y = append(y, 100*(1-to[i]/from[i]))
		}
		if v := y[i]; math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, "", fmt.Errorf("%s of %s is 0: nothing can be compared with it", figure, variants.From)
		}
	}
	return y, unit, nil
}

// series returns the values of a workload's figure over the x axis, for one variant, and the unit.
func (m *measured) series(variant, figure string) (y []float64, unit string, err error) {
	for i, x := range m.points {
		f, err := find(&m.results[variant][i], figure, m.Setting(variant, x).Bytes)
		if err != nil {
			return nil, "", fmt.Errorf("variant %s: %w", variant, err)
		}
		y, unit = append(y, f.Value), f.Unit
	}
	return y, unit, nil
}

// find returns a figure of a result by its name, to which the workload may have added the size of
// messages (bytes). Besides the workload's figures there are its time and the times in calls.
func find(r *work.Result, name string, bytes scenarios.Bytes) (work.Figure, error) {
	us := func(name string, d time.Duration) work.Figure {
		return work.Figure{Name: name, Value: d.Seconds() * 1e6, Unit: "us"}
	}
	all := append(slices.Clone(r.Figures),
		us("time", r.Time), us("waited", r.Waited), us("sending", r.Sending), us("communicating", r.Communicating),
		us("in_collectives", r.InCollectives))
	suffix := fmt.Sprintf(" %d B", bytes)
	var names []string
	for _, f := range all {
		short := strings.TrimSuffix(f.Name, suffix)
		if f.Name == name || short == name {
			return f, nil
		}
		names = append(names, short)
	}
	return work.Figure{}, fmt.Errorf("the workload %s has no figure %s; there are %s", r.Workload, name, strings.Join(names, "; "))
}
