package kit

import (
	"fmt"
	"html/template"
	"math"
	"strings"
)

// Chart is a chart with its legend, for the template "charts".
type Chart struct {
	Title   string
	Keys    []Key
	Marks   string // the meaning of its marks; empty without marks
	Drawing template.HTML
}

// LineChart is a chart of lines with a point at each value, over an x axis with the values in Ticks.
type LineChart struct {
	Left, Width, Height float64 // space left of the frame, and size of the frame
	Label, XLabel       string
	LogX                bool
	Ticks               []XTick // of the x axis, ascending
	// Y returns the scale of the y axis, which starts at a position and has a length, and YText the
	// text of its grid lines.
	Y      func(start, length float64) Scale
	YText  func(v float64) string
	Limits []Limit
	Lines  []Line
	Marks  []Mark
}

// XTick is a value of the x axis with its text, which is left out if there is no room for it.
type XTick struct {
	X    float64
	Text string
}

// Limit is a horizontal line with a text.
type Limit struct {
	Y    float64
	Text string
}

// Line is a line of a LineChart. Class is the CSS class with its colour.
type Line struct {
	Class  string
	Points []LinePoint
}

// LinePoint is a point, and the line from the point before to it. A hollow one has a dashed line.
type LinePoint struct {
	X, Y   float64
	Title  string
	Hollow bool
}

// Mark is a value, or a range of them, that is drawn apart from the lines.
type Mark struct {
	Class, Title string
	X, Low, High float64
}

// Draw returns the chart as SVG. The first of several equal lines is the widest, which keeps all
// visible.
func (c *LineChart) Draw() template.HTML {
	const top, below, right, margin = 10, 38, 16, 14 // margin: between the frame and the outer points
	const charWidth = 6.4
	scale := c.Y(top+c.Height, -c.Height)
	y := scale.Position
	along := func(v float64) float64 {
		if c.LogX {
			return math.Log2(v)
		}
		return v
	}
	first, last := along(c.Ticks[0].X), along(c.Ticks[len(c.Ticks)-1].X)
	if last == first {
		last++ // x divides by the difference
	}
	x := func(v float64) float64 {
		return c.Left + margin + (c.Width-2*margin)*(along(v)-first)/(last-first)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="chart" viewBox="0 0 %.0f %.0f" role="img" aria-label="%s">`, c.Left+c.Width+right, top+c.Height+below, Escape(c.Label))
	for _, v := range scale.Marks() {
		fmt.Fprintf(&b, `<path class="grid" d="M%.0f %.1fh%.0f"/><text x="%.0f" y="%.1f" text-anchor="end">%s</text>`, c.Left, y(v), c.Width, c.Left-6, y(v)+4, Escape(c.YText(v)))
	}
	end := 0.0 // of the last text
	for _, t := range c.Ticks {
		half := charWidth / 2 * float64(len(t.Text))
		if x(t.X)-half > end { // else there is no room for it
			end = x(t.X) + half + charWidth
			fmt.Fprintf(&b, `<text x="%.1f" y="%.0f" text-anchor="middle">%s</text>`, x(t.X), top+c.Height+17, Escape(t.Text))
		}
	}
	fmt.Fprintf(&b, `<text class="axis" x="%.0f" y="%.0f" text-anchor="middle">%s</text>`, c.Left+c.Width/2, top+c.Height+34, Escape(c.XLabel))
	for _, l := range c.Limits {
		textY := y(l.Y) - 4
		if textY < 2*top { // no room above the line
			textY += 16
		}
		fmt.Fprintf(&b, `<path class="limit" d="M%.0f %.1fh%.0f"/><text class="limit" x="%.0f" y="%.1f" text-anchor="end">%s</text>`, c.Left, y(l.Y), c.Width, c.Left+c.Width-2, textY, Escape(l.Text))
	}
	for k, l := range c.Lines {
		above := float64(len(c.Lines) - 1 - k) // lines drawn later
		fmt.Fprintf(&b, `<g class="%s">`, l.Class)
		for i, p := range l.Points {
			if i > 0 {
				before := l.Points[i-1]
				fmt.Fprintf(&b, `<path class="line%s" stroke-width="%.1f" d="M%.1f %.1fL%.1f %.1f"/>`, p.class(), 1.8+above*0.9, x(before.X), y(before.Y), x(p.X), y(p.Y))
			}
		}
		for _, p := range l.Points {
			fmt.Fprintf(&b, `<circle class="dot%s" cx="%.1f" cy="%.1f" r="%.1f">%s</circle>`, p.class(), x(p.X), y(p.Y), 3+above*0.6, title(p.Title))
		}
		b.WriteString("</g>")
	}
	for _, m := range c.Marks {
		const size = 6.5 // of the diamond at each end
		fmt.Fprintf(&b, `<g class="mark %s">%s`, m.Class, title(m.Title))
		for _, v := range []float64{m.Low, m.High} {
			fmt.Fprintf(&b, `<path d="M%.1f %.1fl%g %gl%g %gl%g %gz"/>`, x(m.X), y(v)-size, size, size, -size, size, -size, -size)
		}
		fmt.Fprintf(&b, `<path d="M%.1f %.1fV%.1f"/></g>`, x(m.X), y(m.Low), y(m.High))
	}
	b.WriteString("</svg>")
	return template.HTML(b.String())
}

// class returns the CSS class of a hollow point ("one", see base.css) with a space before it.
func (p *LinePoint) class() string {
	if p.Hollow {
		return " one"
	}
	return ""
}
