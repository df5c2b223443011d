package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/report/internal/kit"
)

// experimentView is the template's data for an experiment.
type experimentView struct {
	Title      string
	Figures    []publishedView
	Charts     []kit.Chart
	Parameters []Parameter
}

// publishedView is a row of the table of published results.
type publishedView struct {
	Row, Text, Where, Published, Ours string
	Class, Verdict, Reason            string
}

// newExperimentView returns the template's data for an experiment. A figure with a Reason is known
// to differ from the published one: if it agrees, the recorded reason is stale.
func newExperimentView(e *Experiment) *experimentView {
	v := &experimentView{Title: e.Title, Parameters: e.Parameters}
	for i := range e.Figures {
		f := &e.Figures[i]
		row := publishedView{Row: f.Row, Text: f.Text, Where: f.Where, Published: f.Published, Ours: f.OursText(), Reason: f.Reason}
		switch {
		case f.Agrees && f.Reason == "":
			row.Class, row.Verdict = "passed", "agrees"
		case f.Agrees:
			row.Class, row.Verdict = "stale", "agrees, and the recorded difference does not hold"
		case f.Reason == "":
			row.Class, row.Verdict = "failed", "differs"
		default:
			row.Class, row.Verdict = "deviates", "differs, as known"
		}
		v.Figures = append(v.Figures, row)
	}
	for i := range e.Charts {
		v.Charts = append(v.Charts, newChartView(&e.Charts[i]))
	}
	return v
}

// OursText is the value of the simulation with its unit, or "none".
func (f *Figure) OursText() string {
	if f.Ours == nil {
		return "none"
	}
	return withUnit(*f.Ours, f.Unit)
}

// withUnit formats a value, with three digits unless it is a size.
func withUnit(v float64, unit string) string {
	if unit == "B" && v >= 0 {
		return strings.Replace(cli.Bytes(uint64(v)), ".0 ", " ", 1)
	}
	return fmt.Sprintf("%.3g %s", v, unit)
}

// xText formats a value of the x axis: a size or a time in a readable unit, and others without.
func xText(v float64, unit string) string {
	switch unit {
	case "B":
		return withUnit(v, unit)
	case "us":
		return cli.Duration(time.Duration(v * 1e3))
	}
	return fmt.Sprint(v)
}

// classOf returns the CSS class of a line.
func classOf(line int) string { return fmt.Sprintf("k%d", line%6) }

// newChartView draws a chart. Sizes and ranks are on a logarithmic x axis, values that span more
// than two powers of ten on a logarithmic y axis. A published value without an X is a line across.
func newChartView(c *Chart) kit.Chart { return drawChart(c, false) }

// drawChart draws a chart. The y axis of a power law is logarithmic whatever its positive values span.
func drawChart(c *Chart, powerLaw bool) kit.Chart {
	v := kit.Chart{Title: c.Title}
	if len(c.Published) > 0 {
		v.Marks = "published"
	}
	if c.Unit != "" {
		v.Title += ", " + c.Unit
	}
	var values []float64
	chart := kit.LineChart{Left: 56, Width: 440, Height: 230, Label: c.Title + " by " + c.XName, XLabel: c.XName, LogX: slices.Contains(logAxes, c.XName)}
	for k, l := range c.Lines {
		v.Keys = append(v.Keys, kit.Key{Class: classOf(k), Name: l.Name})
		line := kit.Line{Class: classOf(k)}
		for _, p := range l.Points {
			values = append(values, p.Y)
			line.Points = append(line.Points, kit.LinePoint{X: p.X, Y: p.Y, Title: fmt.Sprintf("%s, %s: %.4g %s", l.Name, xText(p.X, c.XUnit), p.Y, c.Unit)})
		}
		chart.Lines = append(chart.Lines, line)
	}
	chart.Ticks = c.ticks()
	for _, m := range c.Published {
		values = append(values, m.Low, m.High)
		if m.X == nil {
			chart.Limits = append(chart.Limits, kit.Limit{Y: m.High, Text: m.Text})
			continue
		}
		chart.Marks = append(chart.Marks, kit.Mark{Class: classOf(m.Line), Title: m.Text, X: *m.X, Low: m.Low, High: m.High})
	}
	chart.Y, chart.YText = yScale(values, c.Unit, powerLaw), func(v float64) string { return fmt.Sprintf("%.4g", v) }
	v.Drawing = chart.Draw()
	return v
}

// logAxes are the names of x axes that are logarithmic.
var logAxes = []string{"bytes", "ranks", "qps", "hosts", "messages", "packets"}

// ticks returns the values of the x axis that the lines have.
func (c *Chart) ticks() (ticks []kit.XTick) {
	for _, l := range c.Lines {
		for _, p := range l.Points {
			ticks = append(ticks, kit.XTick{X: p.X, Text: xText(p.X, c.XUnit)})
		}
	}
	slices.SortFunc(ticks, func(a, b kit.XTick) int { return cmp.Compare(a.X, b.X) })
	return slices.Compact(ticks)
}

// yScale returns a logarithmic scale for positive values of more than two powers of ten, unless they
// are percentages, or of a power law, else a linear one.
func yScale(values []float64, unit string, powerLaw bool) func(start, length float64) kit.Scale {
	lowest, highest := values[0], values[0]
	for _, v := range values {
		lowest, highest = min(lowest, v), max(highest, v)
	}
	if unit != "%" && lowest > 0 && (powerLaw || highest/lowest > 100) {
		return func(start, length float64) kit.Scale { return kit.Decades(values, start, length) }
	}
	return func(start, length float64) kit.Scale { return kit.Linear(values, start, length) }
}
