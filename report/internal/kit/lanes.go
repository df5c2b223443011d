package kit

import (
	"cmp"
	"slices"
	"time"
)

// Span is a time span with a label.
type Span struct {
	From, Until time.Duration
	Label       int // length in characters
}

// Lanes assigns spans to at most limit rows without overlap of spans and labels, on a chart
// that is columns characters wide. It returns the row of each span, -1 if there is none,
// and the position where the space for its label ends, from 0 to Width.
func (g Grid) Lanes(spans []Span, limit, columns int) (rows []int, labelEnds []float64) {
	rows, labelEnds = make([]int, len(spans)), make([]float64, len(spans))
	order := make([]int, len(spans))
	for i := range order {
		order[i] = i
		rows[i] = -1
		labelEnds[i] = Width
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(spans[a].From, spans[b].From) })
	last := make([]int, limit) // last span of each row
	for r := range last {
		last[r] = -1
	}
	for _, i := range order {
		for r := range last {
			if prev := last[r]; prev >= 0 {
				end := g.X(spans[prev].Until)
				label := g.X(spans[prev].From) + float64(spans[prev].Label)*Width/float64(columns)
				if g.X(spans[i].From) < end || g.X(spans[i].From) < label {
					continue
				}
				labelEnds[prev] = g.X(spans[i].From)
			}
			rows[i], last[r] = r, i
			break
		}
	}
	return rows, labelEnds
}
