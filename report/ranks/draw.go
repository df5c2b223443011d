package ranks

import (
	"fmt"
	"html/template"
	"math"
	"strings"

	"github.com/fabrictest/fabrictest/internal/units"
)

// column is a column of a stacked column chart.
type column struct {
	label string // below it; may be empty
	title string
	parts []part
	faint bool // drawn faintly
}

// columnChart is the geometry of a column chart.
type columnChart struct {
	width, height float64
	left          float64
	label         string
	ticks         int // number of grid lines
}

// draw draws columns on a scale of bytes.
func (c columnChart) draw(all []column) template.HTML {
	const top, below, right = 8, 18, 8
	most := 0.0
	for _, k := range all {
		sum := 0.0
		for _, p := range k.parts {
			sum += p.value
		}
		most = max(most, sum)
	}
	if most == 0 {
		return ""
	}
	step := niceStep(most / float64(c.ticks))
	end := step * math.Ceil(most/step)
	y := func(v float64) float64 { return top + (c.height-top-below)*(1-v/end) }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="chart" viewBox="0 0 %.0f %.0f" role="img" aria-label="%s">`, c.width, c.height, esc(c.label))
	for v := 0.0; v <= end*1.001; v += step {
		fmt.Fprintf(&b, `<path class="grid" d="M%.0f %.1fH%.0f"/><text x="%.0f" y="%.1f" text-anchor="end">%s</text>`, c.left, y(v), c.width-right, c.left-5, y(v)+3.5, shortBytes(v))
	}
	band := (c.width - right - c.left) / float64(len(all))
	gap := min(band*0.2, 6)
	for i, k := range all {
		x, from := c.left+band*float64(i), 0.0
		class := ""
		if k.faint {
			class = ` class="faint"`
		}
		fmt.Fprintf(&b, `<g%s><title>%s</title>`, class, esc(k.title))
		for _, p := range k.parts {
			if p.value > 0 {
				fmt.Fprintf(&b, `<rect class="%s" x="%.2f" y="%.2f" width="%.2f" height="%.2f"/>`, p.class, x+gap/2, y(from+p.value), band-gap, max(y(from)-y(from+p.value), 0.6))
				from += p.value
			}
		}
		if k.label != "" {
			fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="middle">%s</text>`, x+band/2, c.height-5, esc(k.label))
		}
		b.WriteString("</g>")
	}
	b.WriteString("</svg>")
	return template.HTML(b.String())
}

// niceStep returns a round number of bytes in KiB or MiB that is at least this large.
func niceStep(least float64) float64 {
	step := 1.0
	for step < least {
		step *= 2
	}
	return step
}

// shortBytes formats a round number of bytes.
func shortBytes(v float64) string {
	if v == 0 {
		return "0"
	}
	return strings.Replace(units.Bytes(uint64(v+0.5)), ".0 ", " ", 1)
}

// drawByRank draws the memory of each rank by kind. With many ranks, several share a column,
// which shows the largest of them; share is their number.
func drawByRank(all []Values) (drawing template.HTML, share int) {
	const maxColumns = 128
	if len(all) < 2 {
		return "", 0
	}
	share = (len(all) + maxColumns - 1) / maxColumns
	var columns []column
	for at := 0; at < len(all); at += share {
		group := all[at:min(at+share, len(all))]
		k, most := column{}, -1
		for i, s := range group {
			if s == nil {
				continue
			}
			if kinds, n := memoryOf(s); int(n) > most {
				most = int(n)
				k = column{title: fmt.Sprintf("rank %d: %s", at+i, units.Bytes(n))}
				for kind, m := range kinds {
					k.parts = append(k.parts, part{kindClass(kind), float64(m)})
				}
			}
		}
		columns = append(columns, k)
	}
	for i := range columns {
		if every := (len(columns) + 15) / 16; i%every == 0 {
			columns[i].label = fmt.Sprint(i * share)
		}
	}
	return columnChart{width: 920, height: 180, left: 62, label: "memory of each rank", ticks: 4}.draw(columns), share
}
