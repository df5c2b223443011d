package ranks

import (
	"fmt"
	"html/template"
	"math"
	"strings"

	"github.com/fabrictest/fabrictest/internal/textfmt"
	"github.com/fabrictest/fabrictest/report/internal/kit"
)

// series is the curve of the design name. class is its CSS class.
type series struct {
	class, name string
	points      []*Point
}

// sharedReceiveLimit is the maximum of bytes per rank with an SRQ that Sur 2006 published.
const sharedReceiveLimit = 5e6

// drawLines returns an SVG chart of the mean memory per rank of each series by number of ranks, on
// logarithmic scales. ranks are the sorted values of the x-axis. Points that measure rank 0 alone
// look different. A horizontal line marks sharedReceiveLimit, the maximum of Sur 2006.
func drawLines(all []series, ranks []int) template.HTML {
	const left, top, width, height = 62, 10, 440, 320
	values := []float64{sharedReceiveLimit * 1.01} // the scale must reach above the line
	for _, s := range all {
		for _, p := range s.points {
			values = append(values, p.Bytes.Mean)
		}
	}
	scale := kit.Decades(values, top+height, -height)
	y := scale.Position
	first, last := math.Log2(float64(ranks[0])), math.Log2(float64(ranks[len(ranks)-1]))
	if last == first {
		last++ // x divides by the difference
	}
	const margin = 14 // between the frame and the outer points
	x := func(n int) float64 {
		return left + margin + (width-2*margin)*(math.Log2(float64(n))-first)/(last-first)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="chart" viewBox="0 0 %d %d" role="img" aria-label="bytes a rank against ranks">`, left+width+4, top+height+38)
	for _, v := range scale.Marks() {
		fmt.Fprintf(&b, `<path class="grid" d="M%d %.1fh%d"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`, left, y(v), width, left-6, y(v)+4, strings.ReplaceAll(textfmt.SI(v, "B"), ".0", "")) // as "10 MB"
	}
	for _, n := range ranks {
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">%d</text>`, x(n), top+height+17, n)
	}
	fmt.Fprintf(&b, `<text class="axis" x="%d" y="%d" text-anchor="middle">ranks</text>`, left+width/2, top+height+34)
	fmt.Fprintf(&b, `<path class="limit" d="M%d %.1fh%d"/><text class="limit" x="%d" y="%.1f" text-anchor="end">%s</text>`, left, y(sharedReceiveLimit), width, left+width-2, y(sharedReceiveLimit)-4, textfmt.SI(sharedReceiveLimit, "B"))
	for k, s := range all {
		// The first of several equal curves is the widest, which keeps all visible.
		curvesAbove := float64(len(all) - 1 - k)
		fmt.Fprintf(&b, `<g class="%s">`, s.class)
		for i, p := range s.points {
			if i > 0 {
				before := s.points[i-1]
				class := "line"
				if p.Rank0Only {
					class = "line one"
				}
				fmt.Fprintf(&b, `<path class="%s" stroke-width="%.1f" d="M%.1f %.1fL%.1f %.1f"/>`, class, 1.8+curvesAbove*0.9, x(before.Ranks), y(before.Bytes.Mean), x(p.Ranks), y(p.Bytes.Mean))
			}
		}
		for _, p := range s.points {
			class := "dot"
			if p.Rank0Only {
				class = "dot one"
			}
			fmt.Fprintf(&b, `<circle class="%s" cx="%.1f" cy="%.1f" r="%.1f"><title>%s, %d ranks: %s a rank, %.4g connections, %.4g rings</title></circle>`,
				class, x(p.Ranks), y(p.Bytes.Mean), 3+curvesAbove*0.6, kit.Escape(s.name), p.Ranks, textfmt.Bytes(uint64(p.Bytes.Mean)), p.Connections.Mean, p.Rings.Mean)
		}
		b.WriteString("</g>")
	}
	b.WriteString("</svg>")
	return template.HTML(b.String())
}

// drawByRank draws a column for the memory of each rank, divided by kind; nothing for a single
// rank. stats has the statistics by rank; nil for a rank without. With more than 128 ranks, a
// column stands for perColumn successive ranks and shows the one with the most memory.
func drawByRank(stats []Values) (drawing template.HTML, perColumn int) {
	const maxColumns = 128
	if len(stats) < 2 {
		return "", 0
	}
	perColumn = (len(stats) + maxColumns - 1) / maxColumns
	var columns []kit.Column
	for first := 0; first < len(stats); first += perColumn {
		group := stats[first:min(first+perColumn, len(stats))]
		column, maxBytes := kit.Column{}, -1
		for i, s := range group {
			if s == nil {
				continue
			}
			if kinds, n := memoryOf(s); int(n) > maxBytes {
				maxBytes = int(n)
				column = kit.Column{Title: fmt.Sprintf("rank %d: %s", first+i, textfmt.Bytes(n))}
				for kind, size := range kinds {
					column.Parts = append(column.Parts, kit.Segment{Class: kindClass(kind), Value: float64(size)})
				}
			}
		}
		columns = append(columns, column)
	}
	const maxLabels = 16
	for i := range columns {
		if every := (len(columns) + maxLabels - 1) / maxLabels; i%every == 0 {
			columns[i].Label = fmt.Sprint(i * perColumn)
		}
	}
	return kit.ColumnChart{Width: 920, Height: 180, Left: 62, Label: "memory of each rank", Ticks: 4}.Draw(columns), perColumn
}
