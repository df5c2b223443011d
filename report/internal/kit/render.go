package kit

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/fabrictest/fabrictest/internal/textfmt"
)

// render writes the graph as SVG. All texts are escaped.
func (g *graph) render() Drawing {
	var b strings.Builder
	class := "fabric"
	if len(g.hosts) > 40 {
		class += " dense" // thinner lines
	}
	fmt.Fprintf(&b, `<svg class="%s" viewBox="0 0 %s %s" role="img" aria-label="the fabric">`, class, num(g.w), num(g.h))
	labels := g.labels(len(g.hosts) > 12)
	// Draw the worst states last, on top.
	order := make([]*edge, len(g.edges))
	for i := range g.edges {
		order[i] = &g.edges[i]
	}
	slices.SortStableFunc(order, func(a, b *edge) int { return int(a.State - b.State) })
	for _, e := range order {
		g.edge(&b, e)
	}
	for _, n := range g.switches {
		switchBox(&b, n, labels[n])
	}
	for _, n := range g.hosts {
		hostBox(&b, n, labels[n])
	}
	if len(g.hosts) <= 8 {
		for _, e := range order {
			g.edgeLabel(&b, e)
		}
	}
	b.WriteString("</svg>")
	return Drawing{SVG: template.HTML(b.String()), Width: int(math.Round(g.w)), Height: int(math.Round(g.h))}
}

// ends returns the end points of an edge; parallel edges are side by side.
func (e *edge) ends() (x0, y0, x1, y1 float64) {
	off := 0.0
	if e.of > 1 {
		off = (float64(e.nth) - float64(e.of-1)/2) * 26
	}
	dx, dy := e.b.x-e.a.x, e.b.y-e.a.y
	l := max(1, math.Hypot(dx, dy))
	ox, oy := -dy/l*off, dx/l*off
	return e.a.x + ox, e.a.y + oy, e.b.x + ox, e.b.y + oy
}

func (g *graph) edge(b *strings.Builder, e *edge) {
	x0, y0, x1, y1 := e.ends()
	d := fmt.Sprintf("M%s %sL%s %s", num(x0), num(y0), num(x1), num(y1))
	if !e.a.host && !e.b.host {
		// Edges between switches leave vertically, which keeps bundles readable.
		m := (y0 + y1) / 2
		d = fmt.Sprintf("M%s %sC%s %s %s %s %s %s", num(x0), num(y0), num(x0), num(m), num(x1), num(m), num(x1), num(y1))
	}
	fmt.Fprintf(b, `<path class="e %s" d="%s">%s</path>`, e.State, d, title(e.Title))
}

func (g *graph) edgeLabel(b *strings.Builder, e *edge) {
	if e.Label == "" {
		return
	}
	x0, y0, x1, y1 := e.ends()
	x, y := (x0+x1)/2, (y0+y1)/2
	w := 6.2*float64(utf8.RuneCountInString(e.Label)) + 12
	fmt.Fprintf(b, `<g class="el %s"><rect x="%s" y="%s" width="%s" height="17" rx="8.5"/><text x="%s" y="%s">%s</text></g>`,
		e.State, num(x-w/2), num(y-8.5), num(w), num(x), num(y+3.8), Escape(e.Label))
}

func switchBox(b *strings.Builder, n *node, label string) {
	w := max(56, 6.6*float64(utf8.RuneCountInString(label))+18)
	fmt.Fprintf(b, `<g class="sw">%s<rect x="%s" y="%s" width="%s" height="24" rx="4"/><text x="%s" y="%s">%s</text></g>`,
		title(n.Title), num(n.x-w/2), num(n.y-12), num(w), num(n.x), num(n.y+4), Escape(label))
}

func hostBox(b *strings.Builder, n *node, label string) {
	w, h := max(34, 6.6*float64(utf8.RuneCountInString(label))+16), 24+n.more
	if n.small && n.folded == 0 {
		w, h = 11, 11
	}
	fmt.Fprintf(b, `<g class="h %s">%s<rect x="%s" y="%s" width="%s" height="%s" rx="%s"/>`,
		n.State, title(n.Title), num(n.x-w/2), num(n.y-h/2), num(w), num(h), num(min(8, h/3.5)))
	if n.small && n.folded == 0 {
		fmt.Fprintf(b, `<text class="s" x="%s" y="%s">%s</text>`, num(n.x+13*n.dx), num(n.y+3+12.5*n.dy), Escape(label))
	} else {
		fmt.Fprintf(b, `<text x="%s" y="%s">%s</text>`, num(n.x), num(n.y+4), Escape(label))
	}
	b.WriteString("</g>")
}

func title(s string) string {
	if s == "" {
		return ""
	}
	return "<title>" + html.EscapeString(s) + "</title>"
}

// Escape escapes a text for a drawing, as one line.
func Escape(s string) string { return html.EscapeString(textfmt.PrintableLine(s)) }

func num(v float64) string { return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64) }
