package kit

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/netns/topology"
)

// render writes the graph as SVG. All texts are escaped.
func (g *graph) render() Drawing {
	var b strings.Builder
	class := "fabric"
	if len(g.hosts) > 40 {
		class += " dense" // thinner lines
	}
	fmt.Fprintf(&b, `<svg class="%s" viewBox="0 0 %s %s" role="img" aria-label="the fabric">`, class, num(g.w), num(g.h))
	short := len(g.hosts) > 12 // longer labels would overlap
	labels := g.labels(short)
	// Draw the worst states last, on top.
	order := make([]*edge, len(g.edges))
	for i := range g.edges {
		order[i] = &g.edges[i]
	}
	slices.SortStableFunc(order, func(a, b *edge) int { return int(a.State - b.State) })
	for _, e := range order {
		drawEdge(&b, e)
	}
	for _, n := range g.switches {
		drawSwitch(&b, n, labels[n])
	}
	for _, n := range g.hosts {
		drawHost(&b, n, labels[n])
	}
	if len(g.hosts) <= 8 { // else there is no room for them
		for _, e := range order {
			drawEdgeLabel(&b, e)
		}
	}
	b.WriteString("</svg>")
	return Drawing{SVG: template.HTML(b.String()), Width: int(math.Round(g.w)), Height: int(math.Round(g.h))}
}

// parallelGap is the distance of parallel edges.
const parallelGap = 26

// ends returns the end points of an edge; parallel edges are side by side.
func (e *edge) ends() (x0, y0, x1, y1 float64) {
	off := 0.0
	if e.parallel > 1 {
		off = (float64(e.nth) - float64(e.parallel-1)/2) * parallelGap
	}
	dx, dy := e.b.x-e.a.x, e.b.y-e.a.y
	l := max(1, math.Hypot(dx, dy))
	ox, oy := -dy/l*off, dx/l*off
	return e.a.x + ox, e.a.y + oy, e.b.x + ox, e.b.y + oy
}

// drawEdge draws an edge: a line, or a curve between switches.
func drawEdge(b *strings.Builder, e *edge) {
	x0, y0, x1, y1 := e.ends()
	d := fmt.Sprintf("M%s %sL%s %s", num(x0), num(y0), num(x1), num(y1))
	if !e.a.host && !e.b.host {
		// Edges between switches leave vertically, which keeps bundles readable.
		m := (y0 + y1) / 2
		d = fmt.Sprintf("M%s %sC%s %s %s %s %s %s", num(x0), num(y0), num(x0), num(m), num(x1), num(m), num(x1), num(y1))
	}
	fmt.Fprintf(b, `<path class="e %s" d="%s">%s</path>`, e.State, d, title(e.Title))
}

// drawEdgeLabel draws the label of an edge, if it has one, over its middle.
func drawEdgeLabel(b *strings.Builder, e *edge) {
	if e.Label == "" {
		return
	}
	x0, y0, x1, y1 := e.ends()
	x, y := (x0+x1)/2, (y0+y1)/2
	const charWidth, sideMargins, height, toBaseline = 6.2, 12, 17, 3.8 // of the rectangle and its text
	w := charWidth*float64(utf8.RuneCountInString(e.Label)) + sideMargins
	fmt.Fprintf(b, `<g class="el %s"><rect x="%s" y="%s" width="%s" height="%s" rx="%s"/><text x="%s" y="%s">%s</text></g>`,
		e.State, num(x-w/2), num(y-height/2.0), num(w), num(height), num(height/2.0), num(x), num(y+toBaseline), Escape(e.Label))
}

func drawSwitch(b *strings.Builder, n *node, label string) {
	w := max(56, 6.6*float64(utf8.RuneCountInString(label))+18)
	fmt.Fprintf(b, `<g class="sw">%s<rect x="%s" y="%s" width="%s" height="24" rx="4"/><text x="%s" y="%s">%s</text></g>`,
		title(n.Title), num(n.x-w/2), num(n.y-12), num(w), num(n.x), num(n.y+4), Escape(label))
}

// drawHost draws a host as a box with its label, or, if it is small, as a square with the
// label beside it in the direction dx, dy.
func drawHost(b *strings.Builder, n *node, label string) {
	const charWidth, sideMargins, minWidth, height, squareSide = 6.6, 16, 34, 24, 11
	w, h := max(minWidth, charWidth*float64(utf8.RuneCountInString(label))+sideMargins), height+n.extraHeight
	square := n.small && n.mergedHosts == 0
	if square {
		w, h = squareSide, squareSide
	}
	fmt.Fprintf(b, `<g class="h %s">%s<rect x="%s" y="%s" width="%s" height="%s" rx="%s"/>`,
		n.State, title(n.Title), num(n.x-w/2), num(n.y-h/2), num(w), num(h), num(min(8, h/3.5)))
	if square { // the distances keep the text clear of the square
		fmt.Fprintf(b, `<text class="s" x="%s" y="%s">%s</text>`, num(n.x+13*n.dx), num(n.y+3+12.5*n.dy), Escape(label))
	} else {
		fmt.Fprintf(b, `<text x="%s" y="%s">%s</text>`, num(n.x), num(n.y+4), Escape(label))
	}
	b.WriteString("</g>")
}

// title returns the SVG element of a tooltip; empty if s is.
func title(s string) string {
	if s == "" {
		return ""
	}
	return "<title>" + html.EscapeString(s) + "</title>"
}

// Escape escapes a text for SVG or HTML, as one line.
func Escape(s string) string { return html.EscapeString(cli.PrintableLine(s)) }

// num formats a coordinate, rounded to one decimal.
func num(v float64) string { return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64) }

// State is the state of a link or a host in a drawing, the worst last.
type State int

// States.
const (
	Fine     State = iota
	Impaired       // impaired, without losses
	Lossy          // packets were lost
	Down           // down, temporarily or permanently
)

// String returns the CSS class of the state.
func (s State) String() string { return [...]string{"fine", "impaired", "lossy", "down"}[s] }

// Part is the appearance of a link or a host.
type Part struct {
	State State
	Label string // label, shown if it fits
	Title string // tooltip
}

// Painter decides how the cables and hosts of a fabric are drawn.
type Painter interface {
	Cable(c *topology.Cable) Part
	Host(h *topology.Host) Part
}

// Drawing is an SVG element with its size.
type Drawing struct {
	SVG           template.HTML
	Width, Height int
}

// MaxHosts is the largest number of hosts that are drawn separately. Above it, hosts of a
// switch without events are drawn as one.
const MaxHosts = 96

// Draw draws the hosts, switches and cables of a fabric. The painter gives the state, title
// and label of hosts and cables.
func Draw(t *topology.Topology, painter Painter) Drawing {
	g := newGraph(t, painter)
	g.mergeHosts(MaxHosts)
	switch {
	case len(g.switches) == 0:
		g.layoutPair()
	case len(g.switches) == 1:
		g.layoutRing()
	default:
		g.layoutRows()
	}
	return g.render()
}

// Charts are drawn in a box of Width by Height units that the page scales without scaling
// line widths; texts are outside. With MaxSteps equal steps, all coordinates are integers.
const (
	Width  = 4 * MaxSteps
	Height = 1000
)

// X returns the position of a time on the axis, from 0 to Width.
func (g Grid) X(t time.Duration) float64 {
	x := float64(t) / float64(g.End) * Width
	return math.Round(10*min(Width, max(0, x))) / 10
}

// Path returns SVG path data of a line that is level in each step of the grid, at the value of that
// step. The value top is at the upper end of the chart.
func (g Grid) Path(values []float64, top float64) string {
	b := make([]byte, 0, 8*len(values))
	b = append(b, 'M', '0', ' ')
	last := -1
	for i, v := range values {
		y := level(v, top)
		switch {
		case i == 0:
			b = strconv.AppendInt(b, int64(y), 10)
		case y != last:
			b = append(b, 'V')
			b = strconv.AppendInt(b, int64(y), 10)
		}
		last = y
		// Merge equal steps into one line.
		if i+1 < len(values) && level(values[i+1], top) == y {
			continue
		}
		b = append(b, 'H')
		b = strconv.AppendFloat(b, g.X(g.Edges[i+1]), 'f', -1, 64)
	}
	return string(b)
}

// Area returns SVG path data of the area from the line of Path down to the bottom of the chart.
func (g Grid) Area(values []float64, top float64) string {
	bottom := strconv.Itoa(Height)
	return "M0 " + bottom + strings.Replace(g.Path(values, top), "M0 ", "V", 1) + "V" + bottom
}

// Between returns the area between the lines of low and high, as SVG path data.
func (g Grid) Between(low, high []float64, top float64) string {
	if len(low) == 0 {
		return ""
	}
	b := []byte(g.Path(high, top))
	for i := len(low) - 1; i >= 0; i-- {
		b = append(b, 'V')
		b = strconv.AppendInt(b, int64(level(low[i], top)), 10)
		b = append(b, 'H')
		b = strconv.AppendFloat(b, g.X(g.Edges[i]), 'f', -1, 64)
	}
	return string(append(b, 'Z'))
}

// level returns the distance of a value from the upper end of the chart, where top is.
func level(v, top float64) int {
	if top <= 0 {
		return Height
	}
	return int(math.Round(Height * (1 - min(1, max(0, v/top)))))
}

// Top returns a round number as the upper end of a scale for all values; 0 if none is positive.
func Top(all ...[]float64) float64 {
	highest := 0.0
	for _, v := range all {
		if len(v) > 0 {
			highest = max(highest, slices.Max(v))
		}
	}
	if highest <= 0 || math.IsInf(highest, 0) || math.IsNaN(highest) {
		return 0
	}
	unit := math.Pow(10, math.Floor(math.Log10(highest)))
	for _, m := range []float64{1, 1.5, 2, 3, 4, 5, 6, 8} {
		if highest <= m*unit*1.0001 { // with room for rounding errors
			return m * unit
		}
	}
	return 10 * unit
}

// Tick is a tick of the time axis.
type Tick struct {
	X    float64 // of Width
	Text string
}

// Ticks returns the ticks of the time axis, four to seven, at multiples of a round number.
func (g Grid) Ticks() []Tick {
	step := max(1, Top([]float64{float64(g.End) / 6}))
	var ticks []Tick
	for t := 0.0; t <= float64(g.End)*1.0001; t += step { // with room for rounding errors
		text := "0"
		if t > 0 {
			text = cli.Duration(time.Duration(math.Round(t)))
		}
		ticks = append(ticks, Tick{g.X(time.Duration(t)), text})
	}
	return ticks
}
