package report

import (
	_ "embed"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/perf/record"
	"github.com/fabrictest/fabrictest/report/internal/kit"
)

var (
	//go:embed page/perf.gohtml
	perfText string

	perfLayout = kit.NewLayout(pageCSS, "", nil, perfText)
)

// perfPage is the template's data for recorded runs.
type perfPage struct {
	kit.Page
	Groups []*perfGroup
	Note   string
}

// perfGroup is a benchmark with its charts, and the rows of its series.
type perfGroup struct {
	Title   string
	Charts  []kit.Chart
	Columns []string
	Rows    []perfRow
}

// perfRow is a series.
type perfRow struct {
	Name           string
	Cells          []string
	Class, Verdict string
}

// verdictClass has the style of each verdict.
var verdictClass = map[record.Verdict]string{
	record.Better: "passed", record.Worse: "failed", record.Same: "skipped", record.Inconclusive: "starved", record.Missing: "unsupported",
}

// WriteComparison writes the comparison of two recorded runs as one self-contained page: charts
// with the medians and with the confidence intervals of the changes, and a verdict for each series.
// nameA and nameB are the names of the runs.
func WriteComparison(w io.Writer, c *record.Comparison, a, b *record.Run, nameA, nameB string) error {
	p := &perfPage{Note: "A change is the relative difference of the medians, with its 95 % confidence interval. A series is better or worse if the difference is significant among all series (Mann-Whitney, Holm) and larger than the floor and the A/A noise of both runs: the dashed line is the largest of these."}
	counts := c.Counts()
	var parts []string
	for _, v := range []record.Verdict{record.Worse, record.Better, record.Inconclusive, record.Same, record.Missing} {
		if n := counts[v]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, v))
		}
	}
	p.Page = kit.Page{About: "comparison of two recorded runs", Headline: fmt.Sprintf("%d series: %s", len(c.Rows), strings.Join(parts, ", ")), Facts: runPair(a, b, nameA, nameB)}
	p.Title = "fabrictest: " + p.Headline
	for _, rows := range groupRows(c.Rows) {
		p.Groups = append(p.Groups, comparisonGroup(rows))
	}
	return perfLayout.Write(w, p, "")
}

// runPair returns what is known of two runs.
func runPair(a, b *record.Run, nameA, nameB string) (all kit.Facts) {
	for _, r := range []struct {
		when, name string
		run        *record.Run
	}{{"Before", nameA, a}, {"After", nameB, b}} {
		all.Add(r.when, r.name)
		all.Add("Device", strings.TrimSpace(r.run.Device.Name+" "+r.run.Device.Firmware))
		all.Add("Measured by", r.run.Tool)
		if !r.run.Started.IsZero() {
			all.Add("Started", kit.Stamp(r.run.Started))
		}
	}
	return all
}

// groupRows divides rows by benchmark and unit, in their order.
func groupRows(rows []record.Row) (groups [][]record.Row) {
	index := map[string]int{}
	for _, r := range rows {
		key := benchmark(r.Name) + " " + string(r.Unit)
		i, ok := index[key]
		if !ok {
			i = len(groups)
			index[key], groups = i, append(groups, nil)
		}
		groups[i] = append(groups[i], r)
	}
	return groups
}

// benchmark is the first part of the name of a series.
func benchmark(name string) string {
	first, _, _ := strings.Cut(name, "/")
	return first
}

// splitName returns the number of bytes in the name of a series, 0 if there is none, and its other
// parameters.
func splitName(name string) (bytes float64, rest string) {
	var others []string
	for i, part := range strings.Split(name, "/") {
		text, isBytes := strings.CutPrefix(part, "bytes=")
		switch v, err := strconv.ParseFloat(text, 64); {
		case isBytes && err == nil:
			bytes = v
		case i > 0:
			others = append(others, part)
		}
	}
	return bytes, strings.Join(others, ", ")
}

// comparisonGroup returns the charts and rows of a benchmark: medians, and changes in per cent.
func comparisonGroup(rows []record.Row) *perfGroup {
	unit := rows[0].Unit
	g := &perfGroup{Title: benchmark(rows[0].Name), Columns: []string{"series", "before", "after", "change", "95 % interval", "p", "samples", "verdict"}}
	scale, scaled := perfUnit(rows)
	medians := Chart{Title: "Median", Unit: scaled, XName: "bytes", XUnit: "B"}
	changes := Chart{Title: "Change", Unit: "%", XName: "bytes", XUnit: "B"}
	lines := map[string]int{} // index of the first line, by the other parameters
	floor := 0.0
	for i := range rows {
		r := &rows[i]
		g.Rows = append(g.Rows, comparisonRow(r))
		bytes, rest := splitName(r.Name)
		if r.Verdict == record.Missing {
			continue
		}
		k, ok := lines[rest]
		if !ok {
			k = len(lines)
			lines[rest] = k
			medians.Lines = append(medians.Lines, ChartLine{Name: lineName("before", rest)}, ChartLine{Name: lineName("after", rest)})
			changes.Lines = append(changes.Lines, ChartLine{Name: lineName("after", rest)})
		}
		x := max(bytes, 1) // of a logarithmic axis
		medians.Lines[2*k].Points = append(medians.Lines[2*k].Points, ChartPoint{X: x, Y: r.A.Median / scale})
		medians.Lines[2*k+1].Points = append(medians.Lines[2*k+1].Points, ChartPoint{X: x, Y: r.B.Median / scale})
		changes.Lines[k].Points = append(changes.Lines[k].Points, ChartPoint{X: x, Y: 100 * r.Change})
		changes.Published = append(changes.Published, ChartMark{Line: k, X: &x, Low: 100 * r.Low, High: 100 * r.High, Text: fmt.Sprintf("%s: %+.1f to %+.1f %%", r.Name, 100*r.Low, 100*r.High)})
		floor = max(floor, r.Floor)
	}
	if len(lines) > 0 {
		for _, y := range []float64{-100 * floor, 100 * floor} {
			changes.Published = append(changes.Published, ChartMark{Low: y, High: y, Text: fmt.Sprintf("%+.1f %%", y)})
		}
		g.Charts = []kit.Chart{newChartView(&medians), newChartView(&changes)}
		g.Charts[1].Marks = "95 % interval"
		g.Charts[1].Title += ", more is " + map[bool]string{true: "better", false: "worse"}[unit.MoreIsBetter()]
	}
	return g
}

// lineName is the name of a line of a run, with the parameters of its series beside the size.
func lineName(run, rest string) string {
	if rest == "" {
		return run
	}
	return run + ", " + rest
}

// perfUnit returns a unit that suits the values of rows, and the value that it stands for.
func perfUnit(rows []record.Row) (scale float64, unit string) {
	switch rows[0].Unit {
	case record.Seconds:
		return 1e-6, "µs"
	case record.Bytes:
		return 1e9, "GB/s"
	case record.Size:
		return 1 << 20, "MiB"
	default:
		return 1e6, "M/s"
	}
}

// comparisonRow returns a row of the table.
func comparisonRow(r *record.Row) perfRow {
	row := perfRow{Name: r.Name, Class: verdictClass[r.Verdict], Verdict: string(r.Verdict)}
	text := func(s record.Summary) string {
		if s.N == 0 {
			return "–"
		}
		return r.Unit.Format(s.Median)
	}
	row.Cells = []string{text(r.A), text(r.B), "", "", "", fmt.Sprintf("%d, %d", r.A.N, r.B.N)}
	if r.Verdict != record.Missing {
		copy(row.Cells[2:], []string{fmt.Sprintf("%+.1f %%", 100*r.Change), fmt.Sprintf("%+.1f to %+.1f %%", 100*r.Low, 100*r.High), record.FormatP(r.P)})
	}
	return row
}

// WriteHistory writes the history of recorded runs, in the order of time, as one self-contained
// page: a chart for each series with its level between changes.
func WriteHistory(w io.Writer, runs []*record.Run, changes []record.Change) error {
	p := &perfPage{Note: "A level lasts at least three runs. Dots are medians of runs; the line is the median of the level."}
	worse, better := 0, 0
	for _, c := range changes {
		if c.Better {
			better++
		} else {
			worse++
		}
	}
	p.Page = kit.Page{About: "history of recorded runs", Headline: fmt.Sprintf("%s in %s: %d worse, %d better", cli.Plural(len(changes), "change"), cli.Plural(len(runs), "run"), worse, better)}
	p.Title = "fabrictest: " + p.Headline
	index := map[string]*perfGroup{}
	for _, s := range record.Histories(runs, changes) {
		name := benchmark(s.Name)
		g := index[name]
		if g == nil {
			g = &perfGroup{Title: name, Columns: []string{"series", "run", "before", "after", "change", "verdict"}}
			index[name] = g
			p.Groups = append(p.Groups, g)
		}
		g.Charts = append(g.Charts, historyChart(&s))
		for _, c := range s.Changes {
			verdict := map[bool]record.Verdict{true: record.Better, false: record.Worse}[c.Better]
			g.Rows = append(g.Rows, perfRow{
				Name: c.Name, Cells: []string{strconv.Itoa(c.Run + 1), c.Unit.Format(c.Before), c.Unit.Format(c.After), fmt.Sprintf("%+.1f %%", 100*(c.After/c.Before-1))},
				Class: verdictClass[verdict], Verdict: string(verdict),
			})
		}
	}
	return perfLayout.Write(w, p, "")
}

// historyChart draws the medians and the levels of a series over the number of the run.
func historyChart(s *record.SeriesHistory) kit.Chart {
	scale, unit := perfUnit([]record.Row{{Unit: s.Unit}})
	c := Chart{Title: s.Name, Unit: unit, XName: "run", Lines: []ChartLine{{Name: "runs"}}}
	for i, v := range s.Medians {
		if !math.IsNaN(v) {
			c.Lines[0].Points = append(c.Lines[0].Points, ChartPoint{X: float64(i + 1), Y: v / scale})
		}
	}
	from := 0
	for i := 0; i <= len(s.Changes) && len(s.Changes) > 0; i++ {
		level, to := s.Changes[max(i-1, 0)].After, len(s.Medians)
		if i == 0 {
			level = s.Changes[0].Before
		}
		if i < len(s.Changes) {
			to = s.Changes[i].Run
		}
		line := ChartLine{Name: fmt.Sprintf("level from run %d", from+1)}
		for x := from; x < to; x++ {
			line.Points = append(line.Points, ChartPoint{X: float64(x + 1), Y: level / scale})
		}
		c.Lines, from = append(c.Lines, line), to
	}
	return newChartView(&c)
}

// Curves is a page of measured curves.
type Curves struct {
	Headline, Note string
	Facts          [][2]string // names and values
	Groups         []CurveGroup
}

// CurveGroup is a group of curves over the same axis, with a table of their points.
type CurveGroup struct {
	Title   string
	Charts  []Chart
	Columns []string
	Rows    [][]string // the first cell is the name of the row
}

// WriteCurves writes measured curves as one self-contained page, with a chart for each, whose y axis is
// logarithmic, and tables of their points.
func WriteCurves(w io.Writer, c *Curves) error {
	p := &perfPage{Page: kit.Page{About: "measured curves", Headline: c.Headline, Title: "fabrictest: " + c.Headline}, Note: c.Note}
	for _, f := range c.Facts {
		p.Facts.Add(f[0], f[1])
	}
	for i := range c.Groups {
		from := &c.Groups[i]
		g := &perfGroup{Title: from.Title, Columns: from.Columns}
		for k := range from.Charts {
			g.Charts = append(g.Charts, drawChart(&from.Charts[k], true))
		}
		for _, cells := range from.Rows {
			g.Rows = append(g.Rows, perfRow{Name: cells[0], Cells: cells[1:]})
		}
		p.Groups = append(p.Groups, g)
	}
	return perfLayout.Write(w, p, "")
}
