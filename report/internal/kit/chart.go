package kit

import (
	"fmt"
	"html/template"
	"math"
	"strings"

	"github.com/fabrictest/fabrictest/internal/cli"
)

// Scale maps values to positions on an axis.
type Scale struct {
	From, To float64 // range of values, or of their logarithms to the base 10
	At, Len  float64 // position of From, and distance to To
	Log      bool
	Step     float64 // between grid lines, unless it is 0
}

// Linear returns a scale from 0, or less if a value is negative, that includes all values and has
// four to ten grid lines at round numbers. Its axis starts at position start and has this length.
func Linear(values []float64, start, length float64) Scale {
	lowest, highest := 0.0, 0.0
	for _, v := range values {
		lowest, highest = min(lowest, v), max(highest, v)
	}
	if highest == lowest {
		highest = 1
	}
	step := math.Pow(10, math.Floor(math.Log10((highest-lowest)/4)))
	for _, factor := range []float64{1, 2, 5} {
		if (highest-lowest)/(factor*step) <= 8 {
			step *= factor
			break
		}
	}
	return Scale{From: step * math.Floor(lowest/step), To: step * math.Ceil(highest/step), At: start, Len: length, Step: step}
}

// Decades returns a logarithmic scale that begins and ends at powers of ten and includes all
// positive values. Its axis starts at position start and has this length.
func Decades(values []float64, start, length float64) Scale {
	lowest, highest := math.Inf(1), 0.0
	for _, v := range values {
		if v > 0 {
			lowest, highest = min(lowest, v), max(highest, v)
		}
	}
	if highest == 0 {
		lowest, highest = 1, 10
	}
	from, to := math.Floor(math.Log10(lowest)), math.Ceil(math.Log10(highest))
	return Scale{From: from, To: max(to, from+1), At: start, Len: length, Log: true}
}

// Position returns the position of a value on the axis. On a logarithmic scale, lower values
// than the first are at its start.
func (s Scale) Position(v float64) float64 {
	if s.Log {
		v = math.Log10(max(v, math.Pow(10, s.From)))
	}
	return s.At + s.Len*(v-s.From)/(s.To-s.From)
}

// Marks returns the values of the scale's grid lines. A scale with a Step has its multiples. Others
// have the powers of ten if the scale is logarithmic (From and To are exponents then), and else the
// integers, or every fourth one if the scale is longer than 10.
func (s Scale) Marks() (values []float64) {
	step := 1.0
	switch {
	case s.Step > 0:
		for i := range int(math.Round((s.To-s.From)/s.Step)) + 1 { // multiples, without rounding errors
			values = append(values, s.Step*(math.Round(s.From/s.Step)+float64(i)))
		}
		return values
	case !s.Log && s.To-s.From > 10:
		step = 4
	}
	for e := s.From; e <= s.To; e += step {
		if s.Log {
			values = append(values, math.Pow(10, e))
		} else {
			values = append(values, e)
		}
	}
	return values
}

// Column is a column of a stacked column chart.
type Column struct {
	Label string // below it; may be empty
	Title string
	Parts []Segment
	Faint bool // drawn faintly
}

// ColumnChart is the geometry of a column chart of bytes.
type ColumnChart struct {
	Width, Height float64
	Left          float64
	Label         string
	Ticks         int // number of grid lines
}

// Draw draws columns side by side, each of stacked segments whose values are bytes, as SVG. It
// returns no drawing if all values are 0.
func (c ColumnChart) Draw(columns []Column) template.HTML {
	const top, below, right = 8, 18, 8 // margins
	const minHeight = 0.6              // of a segment, so that it is visible
	highest := 0.0
	for _, column := range columns {
		sum := 0.0
		for _, p := range column.Parts {
			sum += p.Value
		}
		highest = max(highest, sum)
	}
	if highest == 0 {
		return ""
	}
	step := max(1, math.Exp2(math.Ceil(math.Log2(highest/float64(c.Ticks))))) // a power of two
	end := step * math.Ceil(highest/step)                                     // of the scale
	y := func(v float64) float64 { return top + (c.Height-top-below)*(1-v/end) }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="chart" viewBox="0 0 %.0f %.0f" role="img" aria-label="%s">`, c.Width, c.Height, Escape(c.Label))
	for v := 0.0; v <= end*1.001; v += step { // with room for rounding errors
		label := strings.Replace(cli.Bytes(uint64(v+0.5)), ".0 ", " ", 1)
		if v == 0 {
			label = "0"
		}
		fmt.Fprintf(&b, `<path class="grid" d="M%.0f %.1fH%.0f"/><text x="%.0f" y="%.1f" text-anchor="end">%s</text>`, c.Left, y(v), c.Width-right, c.Left-5, y(v)+3.5, label)
	}
	band := (c.Width - right - c.Left) / float64(len(columns))
	gap := min(band*0.2, 6)
	for i, column := range columns {
		x, from := c.Left+band*float64(i), 0.0
		class := ""
		if column.Faint {
			class = ` class="faint"`
		}
		fmt.Fprintf(&b, `<g%s>%s`, class, title(column.Title))
		for _, p := range column.Parts {
			if p.Value > 0 {
				fmt.Fprintf(&b, `<rect class="%s" x="%.2f" y="%.2f" width="%.2f" height="%.2f"/>`, p.Class, x+gap/2, y(from+p.Value), band-gap, max(y(from)-y(from+p.Value), minHeight))
				from += p.Value
			}
		}
		if column.Label != "" {
			fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="middle">%s</text>`, x+band/2, c.Height-5, Escape(column.Label))
		}
		b.WriteString("</g>")
	}
	b.WriteString("</svg>")
	return template.HTML(b.String())
}

// Bars is a horizontal bar chart: names on the left, values on the right. It consists
// of HTML boxes, and fits any width.
type Bars struct {
	Keys []Key
	Bars []bar
	// Grouped reports that some bars form groups.
	Grouped bool
	longest float64
}

// Key is a legend entry.
type Key struct{ Class, Name string }

type bar struct {
	Name, Value string
	Follows     bool        // same group as the bar above
	Parts       []partWidth // set by Scaled
	segments    []Segment
}

// Segment is a segment of a bar or a column.
type Segment struct {
	Class string
	Value float64
}

type partWidth struct {
	Class string
	Width string // in percent
}

// Add adds a bar with its value as text. A bar without a name belongs to the group above.
func (b *Bars) Add(name, value string, parts ...Segment) {
	sum := 0.0
	for _, p := range parts {
		sum += p.Value
	}
	b.longest, b.Grouped = max(b.longest, sum), b.Grouped || name == ""
	b.Bars = append(b.Bars, bar{Name: name, Value: value, Follows: name == "", segments: parts})
}

// Scaled sets the widths of bars in percent of the longest, and returns b; nil if all are empty.
func (b *Bars) Scaled() *Bars {
	const minPercent = 0.2 // so that a part is visible
	if b.longest == 0 {
		return nil
	}
	for i := range b.Bars {
		for _, p := range b.Bars[i].segments {
			if p.Value > 0 {
				b.Bars[i].Parts = append(b.Bars[i].Parts, partWidth{p.Class, fmt.Sprintf("%.3f", max(100*p.Value/b.longest, minPercent))})
			}
		}
	}
	return b
}
