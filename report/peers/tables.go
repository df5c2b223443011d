package peers

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/internal/cli"
)

// table has a row for each comparison of a metric.
type table struct {
	Unit       string
	HasRanks   bool
	HasTargets bool
	Rows       []row
}

// row is a comparison. Size and Ranks are empty if they are those of the row above.
type row struct {
	Ranks, Size, Peer                   string
	Theirs, Ours, NoICRC, Noise, Target string
	Ratio, RatioNoICRC                  cell
	Verdict, VerdictNoICRC              string
}

// cell is a ratio with a colour.
type cell struct {
	Text  string
	Class string // as [heatClass] returns
	Title string
}

// table returns the table of a metric's comparisons.
func (r *Run) table(all []Comparison) table {
	t := table{Unit: all[0].Unit, HasRanks: len(r.Summaries) > 0}
	for i := range all {
		c := &all[i]
		one := row{
			Peer: c.Peer, Theirs: cli.ThreeDigits(c.Theirs), Ours: cli.ThreeDigits(c.Ours), NoICRC: cli.ThreeDigits(c.NoICRC), Noise: fmt.Sprintf("%.0f %%", 100*c.Noise),
			Ratio: c.cell(c.Ratio, c.Ours), RatioNoICRC: c.cell(c.RatioNoICRC, c.NoICRC),
			Target: c.Target, Verdict: c.Verdict, VerdictNoICRC: c.VerdictNoICRC,
		}
		if i == 0 || all[i-1].Bytes != c.Bytes || all[i-1].Ranks != c.Ranks {
			one.Size, one.Ranks = sizeText(c.Bytes), fmt.Sprint(c.Ranks)
		}
		t.HasTargets = t.HasTargets || c.Target != ""
		t.Rows = append(t.Rows, one)
	}
	return t
}

// cell returns the cell of a ratio of our figure.
func (c *Comparison) cell(ratio, ours float64) cell {
	return cell{
		Text: ratioText(ratio), Class: heatClass(ratio, c.Noise, c.LessWins),
		Title: fmt.Sprintf("%s: ours %s, %s %s, noise %.0f %%", c.Name, figureText(ours, c.Unit), c.Peer, figureText(c.Theirs, c.Unit), 100*c.Noise),
	}
}

// heatClass returns the CSS class of a ratio: "even" if it differs from 1 by no more than the noise,
// else "faster" or "slower" with a step, which is 2 from a factor of 1.3 and 3 from a factor of 2.
func heatClass(ratio, noise float64, lessWins bool) string {
	if ratio <= 0 || ratio >= 1-noise && ratio <= 1+noise {
		return "even"
	}
	factor, name := max(ratio, 1/ratio), "faster"
	if (ratio > 1) == lessWins {
		name = "slower"
	}
	switch {
	case factor >= 2:
		return name + " step3"
	case factor >= 1.3:
		return name + " step2"
	}
	return name + " step1"
}

// heatMap has the ratios to a peer: one table with ICRC, one without.
type heatMap struct {
	Peer   string
	Tables []heatTable
}

// heatTable has a row for each operation and number of ranks, and a column for each size.
type heatTable struct {
	Title string
	Sizes []string
	Rows  []heatRow
}

// heatRow has the ratios of an operation. Metric is empty if it is that of the row above.
type heatRow struct {
	Metric string
	Ranks  int
	Cells  []cell
}

// heatMaps returns the heat maps of all peers.
func (r *Run) heatMaps() (maps []heatMap) {
	for _, p := range r.Peers {
		var all []Comparison
		for _, c := range r.Comparisons {
			if c.Peer == p.Name {
				all = append(all, c)
			}
		}
		if len(all) == 0 {
			continue
		}
		maps = append(maps, heatMap{p.Name, []heatTable{
			newHeatTable("with ICRC", all, func(c *Comparison) cell { return c.cell(c.Ratio, c.Ours) }),
			newHeatTable("without ICRC", all, func(c *Comparison) cell { return c.cell(c.RatioNoICRC, c.NoICRC) }),
		}})
	}
	return maps
}

// newHeatTable returns the heat table of a peer's comparisons.
func newHeatTable(title string, all []Comparison, cellOf func(c *Comparison) cell) heatTable {
	t := heatTable{Title: title}
	sizes := inOrder(all, func(c *Comparison) int { return c.Bytes })
	slices.Sort(sizes)
	for _, s := range sizes {
		t.Sizes = append(t.Sizes, sizeText(s))
	}
	type key struct {
		metric string
		ranks  int
	}
	metrics := inOrder(all, func(c *Comparison) string { return c.Metric })
	keys := inOrder(all, func(c *Comparison) key { return key{c.Metric, c.Ranks} })
	slices.SortStableFunc(keys, func(a, b key) int {
		return cmp.Or(slices.Index(metrics, a.metric)-slices.Index(metrics, b.metric), a.ranks-b.ranks)
	})
	last := ""
	for _, k := range keys {
		one := heatRow{Ranks: k.ranks, Cells: make([]cell, len(sizes))}
		if k.metric != last {
			one.Metric, last = k.metric, k.metric
		}
		for i := range all {
			if c := &all[i]; c.Metric == k.metric && c.Ranks == k.ranks {
				one.Cells[slices.Index(sizes, c.Bytes)] = cellOf(c)
			}
		}
		t.Rows = append(t.Rows, one)
	}
	return t
}
