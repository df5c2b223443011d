package kit

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// narrow is the width of a drawing beside a table, wide that of a full-width drawing. All lengths
// of this file are in units of the drawing, about a pixel.
const (
	narrow = 560
	wide   = 1040
)

// layoutPair places hosts side by side, for a fabric without switches. Hosts are taller if they
// have parallel cables.
func (g *graph) layoutPair() {
	cables := 1
	for i := range g.edges {
		cables = max(cables, g.edges[i].parallel)
	}
	const heightWithoutCables = 60
	g.w, g.h = narrow, heightWithoutCables+parallelGap*float64(cables)
	for i, n := range g.hosts {
		n.x = g.w * (float64(i) + 0.5) / float64(len(g.hosts))
		if len(g.hosts) == 2 {
			const margin = 84
			n.x = []float64{margin, g.w - margin}[i]
		}
		n.y = g.h / 2
		n.extraHeight = parallelGap * float64(cables-1)
	}
}

// layoutRing places the switch in the centre and the hosts on an ellipse, at equal distances.
func (g *graph) layoutRing() {
	n := len(g.hosts)
	g.w = narrow
	rx, ry := 196.0, 80.0 // radii of the ellipse
	switch {
	case n > 64:
		g.w, rx, ry = wide, 450, 150
	case n > 40:
		rx, ry = 236, 138
	case n > 16:
		rx, ry = 226, 112
	}
	if n == 2 {
		ry = 10
	}
	g.h = 2*ry + 60
	cx, cy := g.w/2, g.h/2
	g.switches[0].x, g.switches[0].y = cx, cy
	turn := 0.0
	if n == 2 {
		turn = -math.Pi / 2 // two hosts: side by side
	}
	for i, a := range ringAngles(n, rx, ry) {
		h := g.hosts[i]
		a += turn
		sin, cos := math.Sincos(a)
		h.x, h.y = cx+rx*cos, cy+ry*sin
		// The label is outside of the ellipse, along its normal, not on the line from the centre.
		nx, ny := cos/rx, sin/ry
		l := math.Hypot(nx, ny)
		h.dx, h.dy = nx/l, ny/l
		h.small = n > 16
	}
}

// ringAngles returns n angles that divide an ellipse into equal arcs, the first at the top.
func ringAngles(n int, rx, ry float64) []float64 {
	const chords = 2048                 // that approximate the ellipse
	length := make([]float64, chords+1) // of the first k chords
	angle := func(k int) float64 { return -math.Pi/2 + 2*math.Pi*float64(k)/chords }
	for k := 1; k <= chords; k++ {
		s0, c0 := math.Sincos(angle(k - 1))
		s1, c1 := math.Sincos(angle(k))
		length[k] = length[k-1] + math.Hypot(rx*(c1-c0), ry*(s1-s0))
	}
	angles := make([]float64, n)
	k := 0
	for i := range angles {
		for length[k] < length[chords]*float64(i)/float64(n) {
			k++
		}
		angles[i] = angle(k)
	}
	return angles
}

// layoutRows places the hosts in a row, the switches of even rails above and those of odd rails
// below, with a row for each tier: leaves are next to the hosts, spines next to the leaves.
func (g *graph) layoutRows() {
	g.sortHosts()
	n := float64(len(g.hosts))
	pitch := 64.0 // distance of two hosts
	switch {
	case n > 32:
		pitch = 15.5
	case n > 16:
		pitch = 28
	case n > 8:
		pitch = 46
	}
	if slices.ContainsFunc(g.hosts, func(h *node) bool { return h.mergedHosts > 0 }) {
		pitch = max(pitch, 88) // fits "100 hosts"
	}
	g.w = narrow
	const sideMargins = 30
	if n*pitch > narrow-sideMargins {
		g.w = max(wide, n*pitch+sideMargins)
		pitch = (g.w - sideMargins) / n
	}
	left := (g.w - n*pitch) / 2
	for i, h := range g.hosts {
		h.x = left + pitch*(float64(i)+0.5)
		h.small = pitch < 40
		h.dy = 1 // the label is below
	}
	rows := map[int][]*node{} // switches by tier, negative below the hosts
	top, bottom := 0, 0
	for _, s := range g.switches {
		row := s.tier
		if s.rail%2 != 0 {
			row = -s.tier
		}
		rows[row] = append(rows[row], s)
		top, bottom = max(top, row), min(bottom, row)
	}
	const margin, labelHeight = 34.0, 14
	rowHeight := 88.0
	if n > 40 {
		rowHeight = 116 // else the outer lines are too flat
	}
	y := func(row int) float64 { return margin + float64(top-row)*rowHeight }
	g.h = y(bottom) + margin + labelHeight
	for _, h := range g.hosts {
		h.y = y(0)
	}
	for row := 1; row <= max(top, -bottom); row++ {
		g.placeSwitches(rows[row], y(row))
		g.placeSwitches(rows[-row], y(-row))
	}
}

// sortHosts orders hosts by their first switch of rail 0.
func (g *graph) sortHosts() {
	index := map[*node]int{}
	for i, s := range g.switches {
		index[s] = i
	}
	home := map[*node]int{} // index of the switch, by host
	for i := range g.edges {
		e := &g.edges[i]
		for _, h := range []*node{e.a, e.b} {
			if at, ok := index[e.other(h)]; ok && h.host && e.other(h).rail == 0 {
				if old, ok := home[h]; !ok || at < old {
					home[h] = at
				}
			}
		}
	}
	slices.SortStableFunc(g.hosts, func(a, b *node) int { return cmp.Compare(home[a], home[b]) })
}

// placeSwitches places each switch of a row at the mean position of its neighbours in the tier
// below: hosts for a leaf, leaves for a spine. If switches would be too close, it places them at
// equal distances instead.
func (g *graph) placeSwitches(row []*node, y float64) {
	if len(row) == 0 {
		return
	}
	middle := map[*node]float64{}
	for _, s := range row {
		sum, n := 0.0, 0.0
		for i := range g.edges {
			e := &g.edges[i]
			if e.a != s && e.b != s {
				continue
			}
			if other := e.other(s); other.host || other.tier < s.tier {
				sum, n = sum+other.x, n+1
			}
		}
		middle[s] = g.w / 2
		if n > 0 {
			middle[s] = sum / n
		}
	}
	slices.SortStableFunc(row, func(a, b *node) int { return cmp.Compare(math.Round(middle[a]), math.Round(middle[b])) })
	const margin, wantedGap = 30, 64
	minGap := min(wantedGap, (g.w-2*margin)/float64(len(row)))
	apart := true
	for i := 1; i < len(row); i++ {
		apart = apart && middle[row[i]]-middle[row[i-1]] >= minGap
	}
	for i, s := range row {
		s.x, s.y = middle[s], y
		if !apart {
			// Spines, for example, all have the same mean position: distribute them over the width.
			s.x = g.w * (float64(i) + 0.5) / float64(len(row))
		}
	}
}

// Span is a time span with a label.
type Span struct {
	From, Until time.Duration
	Label       int // length in characters
}

// Lanes assigns spans to at most limit rows, so that neither spans nor their labels overlap. A
// label starts at the start of its span; chartChars is the width of the chart in characters. Lanes
// returns the row of each span, -1 if no row has space, and the position (0 to Width) at which the
// space for its label ends: the start of the next span in the row.
func (g Grid) Lanes(spans []Span, limit, chartChars int) (rows []int, labelEnds []float64) {
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
				labelEnd := g.X(spans[prev].From) + float64(spans[prev].Label)*Width/float64(chartChars)
				if g.X(spans[i].From) < end || g.X(spans[i].From) < labelEnd {
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
