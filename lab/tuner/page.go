package tuner

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/report"
)

// WritePage writes a page with a map of each operation: the best algorithm by ranks and size.
func (r *Result) WritePage(w io.Writer, command string) error {
	m := &report.Map{
		Headline: fmt.Sprintf("Algorithms of collective operations: another one than the default is best at %d of %d points", r.Better(), len(r.Points)),
		Note: "The time is the median at the slowest rank. A cell names the algorithm to choose, with by how much it takes less time than the default. " +
			"Without a number, none takes at least 5 % less beyond the noise (95 % confidence intervals): it is the default. The tooltip has all times.",
		Facts: [][2]string{
			{"Command", command}, {"Fabric", r.describeFabric()}, {"Started", r.Started.Format("2006-01-02 15:04 MST")}, {"Took", cli.Duration(r.Took)},
		},
	}
	for _, text := range r.LeftOut {
		m.Facts = append(m.Facts, [2]string{"Left out", text})
	}
	for from := 0; from < len(r.Points); {
		end := from
		for end < len(r.Points) && r.Points[end].Operation == r.Points[from].Operation {
			end++
		}
		m.Groups = append(m.Groups, mapOf(r.Points[from:end]))
		from = end
	}
	return report.WriteMap(w, m)
}

// describeFabric returns the fabric in a few words.
func (r *Result) describeFabric() string {
	f := r.Fabric
	words := []string{f.Tier, f.Provider, "hosts around a " + f.Topology, cli.Plural(f.Rails, "rail")}
	for name, value := range map[string]string{"platform ": f.Platform, "cables ": f.Cable} {
		if value != "none" {
			words = append(words, name+value)
		}
	}
	return strings.Join(words, ", ")
}

// mapOf returns the map of an operation.
func mapOf(points []*Point) report.MapGroup {
	g := report.MapGroup{Title: points[0].Operation}
	var sizes []int
	for _, p := range points {
		if !slices.Contains(sizes, p.Bytes) {
			sizes = append(sizes, p.Bytes)
		}
	}
	slices.Sort(sizes)
	for _, n := range sizes {
		g.Columns = append(g.Columns, map[bool]string{true: "any size", false: cli.Bytes(n)}[n == 0])
	}
	for i, p := range points {
		if i == 0 || !points[i-1].sameCurve(p) {
			g.Rows = append(g.Rows, report.MapRow{Name: fmt.Sprintf("%d ranks, %d per host", p.Ranks, p.PerHost), Cells: make([]report.MapCell, len(sizes))})
		}
		key := slices.Index(g.Keys, p.Best.Algorithm)
		if key < 0 {
			key = len(g.Keys)
			g.Keys = append(g.Keys, p.Best.Algorithm)
		}
		g.Rows[len(g.Rows)-1].Cells[slices.Index(sizes, p.Bytes)] = report.MapCell{Name: p.Best.Algorithm, Key: key, Gain: max(0, p.Gain()), Details: p.details()}
	}
	return g
}

// details returns the times of all algorithms.
func (p *Point) details() string {
	var b strings.Builder
	for i := range p.Times {
		t := &p.Times[i]
		fmt.Fprintf(&b, "%s %s (%s to %s)", t.Algorithm, cli.Duration(t.Slowest), cli.Duration(t.Low), cli.Duration(t.High))
		if t.Default {
			b.WriteString(", the default")
		}
		b.WriteByte('\n')
	}
	return strings.TrimSpace(b.String())
}
