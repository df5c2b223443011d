package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/report/internal/kit"
)

// timeView is the template's data for a timeline: panels over one time axis.
type timeView struct {
	Panels []panelView
	Shades []shadeView
	Lanes  []laneView // labels of the faults
	Rows   int        // number of lanes
	Hidden int        // faults without a lane
	Marks  []markView
	Ticks  []tickView
	// ZeroNote names the counters that stayed 0 and have no panel.
	ZeroNote string
	End      int64 // nanoseconds, for the tooltip
}

type panelView struct {
	Title, Top string
	Kind       string // unit in the tooltip: bits, rate, count
	Max        float64
	Lines      []lineView
	Band       string // area behind the lines, as SVG path data
}

type lineView struct {
	Name, Class, Path string
}

// shadeView is the duration of a fault, drawn behind the lines.
type shadeView struct{ X, W float64 }

// laneView is the bar and label of a fault, in percent of the width and rows from the top.
type laneView struct {
	Left, Room float64
	Row        int
	Text       string
}

// markView is a kind of mark with its ticks.
type markView struct {
	Name, Path string
	Count      int
}

type tickView struct {
	X    float64 // in the units of the chart
	Left float64
	Text string
	End  bool // near the right edge: not centred
}

// newTimeView returns the charts of a result over time; nil if no rank has samples.
func newTimeView(r *Result) *timeView {
	var bytes, resent, errs []kit.Track
	var names []string
	for i := range r.Ranks {
		rank := &r.Ranks[i]
		if len(rank.Samples) == 0 {
			continue
		}
		rankBytes, rankResent, rankErrs := tracks(rank.Samples)
		rankBytes.MaxRate = r.linkRateTo(rank.Host) / 8 // bytes per second
		bytes, resent, errs = append(bytes, rankBytes), append(resent, rankResent), append(errs, rankErrs)
		names = append(names, fmt.Sprintf("rank %d", rank.Rank))
	}
	if len(bytes) == 0 {
		return nil
	}
	grid := kit.NewGrid(r.Elapsed, bytes)
	v := &timeView{End: int64(grid.End)}
	v.addThroughput(grid, bytes, names)
	var zero []string
	if !v.addTotal(grid, "Packets sent again", "rate", "resent", mapTracks(resent, grid.Rate)) {
		zero = append(zero, "nothing was sent again")
	}
	if !v.addTotal(grid, "Errors, so far", "count", "errors", mapTracks(errs, grid.Level)) {
		zero = append(zero, "no completion had an error")
	}
	if len(zero) > 0 {
		v.ZeroNote = strings.Join(zero, ", and ") + "."
		v.ZeroNote = strings.ToUpper(v.ZeroNote[:1]) + v.ZeroNote[1:]
	}
	v.addFaults(grid, r.Faults)
	v.addMarks(grid, r.Ranks)
	for _, t := range grid.Ticks() {
		nearEnd := t.X > 0.93*kit.Width // a centred text would not fit
		v.Ticks = append(v.Ticks, tickView{X: t.X, Left: percent(t.X), Text: t.Text, End: nearEnd})
	}
	return v
}

// linkRateTo returns the sum of the rates of the links to a host, in bits per second; 0 if the
// rate of one is not limited.
func (r *Result) linkRateTo(host string) (sum float64) {
	for i := range r.Links {
		if l := &r.Links[i]; strings.HasPrefix(l.To, host+"/") {
			if l.RateBps == 0 {
				return 0
			}
			sum += float64(l.RateBps)
		}
	}
	return sum
}

// tracks returns the bytes, retransmissions and errors of samples over time.
func tracks(samples []Sample) (bytes, resent, errs kit.Track) {
	for _, s := range samples {
		bytes.At = append(bytes.At, s.At)
		bytes.Count = append(bytes.Count, s.Bytes)
		resent.Count = append(resent.Count, s.Resent)
		errs.Count = append(errs.Count, s.Errors)
	}
	resent.At, errs.At = bytes.At, bytes.At
	return bytes, resent, errs
}

// mapTracks returns the result of f for each track.
func mapTracks(all []kit.Track, f func(kit.Track) []float64) [][]float64 {
	out := make([][]float64, len(all))
	for i := range all {
		out[i] = f(all[i])
	}
	return out
}

// addThroughput adds a panel with a line for each rank, and its name, if there are few ranks. Else
// it adds a panel with the sum, and one with the lowest, median and highest rate of a rank.
func (v *timeView) addThroughput(g kit.Grid, bytes []kit.Track, names []string) {
	const maxRankLines = 6 // ranks with separate lines
	rates := mapTracks(bytes, g.Rate)
	for _, r := range rates {
		for i := range r {
			r[i] *= 8 // bits
		}
	}
	if len(rates) <= maxRankLines {
		top := kit.Top(rates...)
		p := panelView{Title: "Throughput by rank", Kind: "bits", Max: top, Top: cli.BitRate(top)}
		for i, r := range rates {
			p.Lines = append(p.Lines, lineView{names[i], fmt.Sprintf("k%d", i), g.Path(r, top)})
		}
		v.Panels = append(v.Panels, p)
		return
	}
	v.addTotal(g, "Throughput, all", "bits", "sum", rates)
	low, mid, high := kit.Band(rates)
	if top := kit.Top(high); top > 0 {
		v.Panels = append(v.Panels, panelView{
			Title: "Throughput, a rank", Kind: "bits", Max: top, Top: cli.BitRate(top),
			Band:  g.Between(low, high, top),
			Lines: []lineView{{"most", "high", g.Path(high, top)}, {"median", "mid", g.Path(mid, top)}, {"least", "low", g.Path(low, top)}},
		})
	}
}

// addTotal adds a panel with the sum of all ranks, unless the sum is always zero. It reports
// whether it did. kind is panelView.Kind, class the CSS class of the line.
func (v *timeView) addTotal(g kit.Grid, title, kind, class string, all [][]float64) (added bool) {
	sum := kit.Sum(all)
	top := kit.Top(sum)
	if top == 0 {
		return false
	}
	label := cli.SI(top, "") // of kind "count"
	switch kind {
	case "bits":
		label = cli.BitRate(top)
	case "rate":
		label = cli.SI(top, "") + "/s"
	}
	v.Panels = append(v.Panels, panelView{
		Title: title, Kind: kind, Max: top, Top: label,
		Lines: []lineView{{"all ranks", "area " + class, g.Area(sum, top)}},
	})
	return true
}

// Rows for faults above the panels, the characters that fit into a row, and the limit of shades.
const (
	laneRows    = 4
	laneColumns = 120
	maxShades   = 200
)

// addFaults adds a shade and, where a row has room, a labelled bar for each fault. A fault without
// an end, which may be an instant, is drawn to the end of the chart.
func (v *timeView) addFaults(g kit.Grid, faults []Fault) {
	spans := make([]kit.Span, len(faults))
	for i, f := range faults {
		until := f.Until
		if until <= f.At {
			until = g.End
		}
		spans[i] = kit.Span{From: f.At, Until: until, Label: utf8.RuneCountInString(f.What) + 3} // 3: margin
	}
	rows, labelEnds := g.Lanes(spans, laneRows, laneColumns) // row -1: no row has room for the bar
	for i, s := range spans {
		x, end := g.X(s.From), g.X(s.Until)
		if i < maxShades {
			v.Shades = append(v.Shades, shadeView{x, max(1, end-x)})
		}
		if rows[i] < 0 {
			v.Hidden++
			continue
		}
		v.Rows = max(v.Rows, rows[i]+1)
		v.Lanes = append(v.Lanes, laneView{
			Left: percent(x), Room: percent(labelEnds[i] - x), Row: rows[i], Text: faults[i].What,
		})
	}
}

// addMarks adds the marks of all ranks (events such as "connected"), grouped by kind, for the
// maxMarks kinds that occur first.
func (v *timeView) addMarks(g kit.Grid, ranks []Rank) {
	const maxMarks = 6 // kinds of marks
	var marks []Mark
	for i := range ranks {
		marks = append(marks, ranks[i].Marks...)
	}
	slices.SortStableFunc(marks, func(a, b Mark) int { return cmp.Compare(a.At, b.At) })
	positions := map[string][]int{} // x of the marks, by kind
	var kinds []string              // in the order in which they first occur
	for _, m := range marks {
		if positions[m.What] == nil {
			kinds = append(kinds, m.What)
		}
		positions[m.What] = append(positions[m.What], int(g.X(m.At)))
	}
	for _, kind := range kinds[:min(maxMarks, len(kinds))] {
		mark := markView{Name: kind, Count: len(positions[kind])}
		for _, x := range slices.Compact(positions[kind]) {
			mark.Path += fmt.Sprintf("M%d 0V1", x) // a vertical line
		}
		v.Marks = append(v.Marks, mark)
	}
}

// percent converts a position on the time axis to a CSS percentage.
func percent(x float64) float64 { return math.Round(x/kit.Width*1e4) / 100 }
