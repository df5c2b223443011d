package ranks

import (
	"fmt"
	"html/template"
	"math"
	"strings"

	"github.com/fabrictest/fabrictest/internal/textfmt"
	"github.com/fabrictest/fabrictest/report/internal/kit"
)

// series is the curve of a design.
type series struct {
	class, name string
	points      []*Point
}

// sharedReceiveLimit is the published number of bytes per rank with shared receives (Survey).
const sharedReceiveLimit = 5e6

// drawLines draws bytes per rank by number of ranks, on logarithmic scales.
func drawLines(all []series, ranks []int) template.HTML {
	const left, top, width, height = 62, 10, 440, 320
	values := []float64{sharedReceiveLimit * 1.01}
	for _, s := range all {
		for _, p := range s.points {
			values = append(values, p.Bytes.Mean)
		}
	}
	scale := kit.Decades(values, top+height, -height)
	y := scale.Position
	first, last := math.Log2(float64(ranks[0])), math.Log2(float64(ranks[len(ranks)-1]))
	if last == first {
		last++
	}
	x := func(n int) float64 { return left + 14 + (width-28)*(math.Log2(float64(n))-first)/(last-first) }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="chart" viewBox="0 0 %d %d" role="img" aria-label="bytes a rank against ranks">`, left+width+4, top+height+38)
	for _, v := range scale.Marks() {
		fmt.Fprintf(&b, `<path class="grid" d="M%d %.1fh%d"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`, left, y(v), width, left-6, y(v)+4, decimalBytes(v))
	}
	for _, n := range ranks {
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">%d</text>`, x(n), top+height+17, n)
	}
	fmt.Fprintf(&b, `<text class="axis" x="%d" y="%d" text-anchor="middle">ranks</text>`, left+width/2, top+height+34)
	fmt.Fprintf(&b, `<path class="limit" d="M%d %.1fh%d"/><text class="limit" x="%d" y="%.1f" text-anchor="end">5 MB</text>`, left, y(sharedReceiveLimit), width, left+width-2, y(sharedReceiveLimit)-4)
	for k, s := range all {
		// The first of several equal curves is the widest, which keeps all visible.
		wide := float64(len(all) - 1 - k)
		fmt.Fprintf(&b, `<g class="%s">`, s.class)
		for i, p := range s.points {
			if i > 0 {
				before := s.points[i-1]
				class := "line"
				if p.Rank0Only {
					class = "line one"
				}
				fmt.Fprintf(&b, `<path class="%s" stroke-width="%.1f" d="M%.1f %.1fL%.1f %.1f"/>`, class, 1.8+wide*0.9, x(before.Ranks), y(before.Bytes.Mean), x(p.Ranks), y(p.Bytes.Mean))
			}
		}
		for _, p := range s.points {
			class := "dot"
			if p.Rank0Only {
				class = "dot one"
			}
			fmt.Fprintf(&b, `<circle class="%s" cx="%.1f" cy="%.1f" r="%.1f"><title>%s, %d ranks: %s a rank, %.4g connections, %.4g rings</title></circle>`,
				class, x(p.Ranks), y(p.Bytes.Mean), 3+wide*0.6, kit.Escape(s.name), p.Ranks, textfmt.Bytes(uint64(p.Bytes.Mean)), p.Connections.Mean, p.Rings.Mean)
		}
		b.WriteString("</g>")
	}
	b.WriteString("</svg>")
	return template.HTML(b.String())
}

// decimalBytes formats a power of ten of bytes.
func decimalBytes(v float64) string { return strings.ReplaceAll(textfmt.SI(v, "B"), ".0", "") }

// drawByRank draws the memory of each rank by kind. With many ranks, several share a column,
// which shows the largest of them; share is their number.
func drawByRank(all []Values) (drawing template.HTML, share int) {
	const maxColumns = 128
	if len(all) < 2 {
		return "", 0
	}
	share = (len(all) + maxColumns - 1) / maxColumns
	var columns []kit.Column
	for at := 0; at < len(all); at += share {
		group := all[at:min(at+share, len(all))]
		k, most := kit.Column{}, -1
		for i, s := range group {
			if s == nil {
				continue
			}
			if kinds, n := memoryOf(s); int(n) > most {
				most = int(n)
				k = kit.Column{Title: fmt.Sprintf("rank %d: %s", at+i, textfmt.Bytes(n))}
				for kind, m := range kinds {
					k.Parts = append(k.Parts, kit.Segment{Class: kindClass(kind), Value: float64(m)})
				}
			}
		}
		columns = append(columns, k)
	}
	for i := range columns {
		if every := (len(columns) + 15) / 16; i%every == 0 {
			columns[i].Label = fmt.Sprint(i * share)
		}
	}
	return kit.ColumnChart{Width: 920, Height: 180, Left: 62, Label: "memory of each rank", Ticks: 4}.Draw(columns), share
}
