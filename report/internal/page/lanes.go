package page

import (
	"cmp"
	"slices"
	"time"
)

// Span is something that lasts, with a label that needs room.
type Span struct {
	From, Until time.Duration
	Label       int // its length in characters
}

// Lanes puts spans into rows so that neither they nor their labels overlap, as
// far as limit rows reach, on a chart that has room for columns characters. It
// returns the row of each span, -1 for one that found none, and where on the
// axis (of Width) the room of its label ends.
func (g Grid) Lanes(spans []Span, limit, columns int) (rows []int, room []float64) {
	rows, room = make([]int, len(spans)), make([]float64, len(spans))
	order := make([]int, len(spans))
	for i := range order {
		order[i] = i
		rows[i] = -1
		room[i] = Width
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(spans[a].From, spans[b].From) })
	last := make([]int, limit) // the span that was put into each row last
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
				room[prev] = g.X(spans[i].From)
			}
			rows[i], last[r] = r, i
			break
		}
	}
	return rows, room
}
