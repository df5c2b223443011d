package experiment

import (
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios"
)

// charts returns a chart for each figure of the workload that is measured, with a line for each
// variant that has it, and a chart for each comparison of two variants. It returns none if there is
// only one point.
func (m *measured) charts() (all []report.Chart, err error) {
	if len(m.points) < 2 {
		return nil, nil
	}
	chartOf := func(title, unit string) *report.Chart { // creates it on first use
		i := slices.IndexFunc(all, func(c report.Chart) bool { return c.Title == title })
		if i < 0 {
			i = len(all)
			all = append(all, report.Chart{Title: title, Unit: unit, XName: m.Vary.Name(), XUnit: m.Vary.Unit()})
		}
		return &all[i]
	}
	for i := range m.Figures {
		f := &m.Figures[i]
		ms := f.Measure
		for _, name := range m.names {
			if y, unit, err := m.series(name, ms.Figure); err == nil { // else the variant has no such figure
				m.addLine(chartOf(ms.Figure, unit), name, y)
			}
		}
		y, unit, err := m.curve(&ms)
		if err != nil {
			return nil, err
		}
		chart, line := chartOf(ms.Figure, unit), ms.Of
		switch ms.Kind {
		case scenarios.Reduction, scenarios.Increase, scenarios.Ratio, scenarios.Difference:
			line = fmt.Sprintf("from %s to %s", ms.From, ms.To)
			if ms.Beyond.From != "" {
				line += fmt.Sprintf(", beyond that from %s to %s", ms.Beyond.From, ms.Beyond.To)
			}
			chart = chartOf(ms.Kind+" of "+ms.Figure, unit)
			m.addLine(chart, line, y)
		case scenarios.Value:
		default:
			continue // a crossover and the like are values of the x axis, not of a line
		}
		at := slices.IndexFunc(chart.Lines, func(l report.ChartLine) bool { return l.Name == line })
		chart.Published = append(chart.Published, mark(f, at))
	}
	return all, nil
}

// addLine adds a line to a chart, unless the chart has it.
func (m *measured) addLine(c *report.Chart, name string, y []float64) {
	if slices.ContainsFunc(c.Lines, func(l report.ChartLine) bool { return l.Name == name }) {
		return
	}
	line := report.ChartLine{Name: name}
	for i, p := range m.points {
		line.Points = append(line.Points, report.ChartPoint{X: p.X(), Y: y[i]})
	}
	c.Lines = append(c.Lines, line)
}

// mark returns the published value of a figure as a mark in a chart, for the line with the index
// line. The mark is at a point of the x axis, unless the figure is an extreme over all points.
func mark(f *scenarios.Figure, line int) report.ChartMark {
	p := &f.Published
	mk := report.ChartMark{Text: f.Row + ", published: " + p.Describe(), Line: line}
	if f.Measure.Over == "" {
		x := f.Measure.X()
		mk.X = &x
	}
	if p.Range != nil {
		mk.Low, mk.High = p.Range[0], p.Range[1]
	} else {
		mk.Low, mk.High = *p.Value, *p.Value
	}
	return mk
}
