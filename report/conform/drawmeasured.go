package conform

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/report/internal/kit"
)

// measuredView has the measurements of a device.
type measuredView struct {
	Device     string
	ByPosition template.HTML // times by the position of the lost packet
	Times      template.HTML
	Timers     template.HTML
	Rows       []measuredRow
}

// measuredRow is a row of the table.
type measuredRow struct {
	Name, About, Median, Least, Most string
	Samples                          int
}

// newMeasured returns the table and the charts of the measurements of a device; nil if there are
// none. Measurements with a Position, the number of the lost packet in its window, have their own
// chart.
func newMeasured(d *Device) *measuredView {
	if len(d.Measured) == 0 {
		return nil
	}
	v := &measuredView{Device: d.Label()}
	var times, timers []*Measured
	for i := range d.Measured {
		m := &d.Measured[i]
		v.Rows = append(v.Rows, measuredRow{m.Name, m.About, m.In(m.Median), m.In(m.Least), m.In(m.Most), len(m.Samples)})
		switch {
		case len(m.Samples) == 0 || m.Position > 0:
		case m.Unit == Microseconds:
			times = append(times, m)
		case m.Unit == Nominal:
			timers = append(timers, m)
		}
	}
	v.ByPosition, v.Times, v.Timers = drawByPosition(d.Measured), drawTimes(times), drawTimers(timers)
	return v
}

// The chart of recovery times by the position of the loss.
const (
	placeLeft, placeTop     = 84, 14
	placeWidth, placeHeight = 846, 240
)

// placeSeries are the series of the chart, by prefix of the measurement's name.
var placeSeries = []struct{ prefix, class, name string }{
	{"loss/", "write", "WRITE: until the packet comes again"},
	{"read/", "read", "READ: until the response is asked for again"},
}

// drawByPosition draws the recovery time by the position of the lost packet in its window, for each
// series of measurements: a dot per sample, a line for the median. It returns "" if there are no
// positions, or more than fit beside each other.
func drawByPosition(all []Measured) template.HTML {
	var values []float64
	positions := 0
	timer := 0.0 // retransmission timeout
	for i := range all {
		switch m := &all[i]; {
		case m.Position > 0:
			positions = max(positions, m.Position)
			values = append(values, m.Samples...)
		case m.Name == "loss/timer":
			timer = m.Median
			values = append(values, timer)
		}
	}
	const maxPositions = 64
	if positions == 0 || positions > maxPositions {
		return ""
	}
	y := kit.Decades(values, placeTop+placeHeight, -placeHeight)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="chart" viewBox="0 0 %d %d" role="img" aria-label="time by the position of the lost packet">`, placeLeft+placeWidth+10, placeTop+placeHeight+70)
	for _, v := range y.Marks() {
		fmt.Fprintf(&b, `<path class="grid" d="M%d %.1fh%d"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`, placeLeft, y.Position(v), placeWidth, placeLeft-8, y.Position(v)+4, kit.Escape(timeOf(v)))
	}
	if timer > 0 {
		fmt.Fprintf(&b, `<path class="limit" d="M%d %.1fh%d"/><text class="limit" x="%d" y="%.1f">timeout %s</text>`, placeLeft, y.Position(timer), placeWidth, placeLeft+6, y.Position(timer)-5, kit.Escape(timeOf(timer)))
	}
	band := float64(placeWidth) / float64(positions)
	for p := range positions {
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">%d</text>`, placeLeft+band*(float64(p)+.5), placeTop+placeHeight+18, p+1)
	}
	fmt.Fprintf(&b, `<text class="axis" x="%d" y="%d" text-anchor="middle">position of the packet that is lost, of %d</text>`, placeLeft+placeWidth/2, placeTop+placeHeight+36, positions)
	for k, s := range placeSeries {
		fmt.Fprintf(&b, `<g class="%s">`, s.class)
		for i := range all {
			if m := &all[i]; m.Position > 0 && strings.HasPrefix(m.Name, s.prefix) {
				// The two series are to the left and right of the centre of the position's band.
				mid := placeLeft + band*(float64(m.Position)-.5) + (float64(k)-.5)*min(band*.42, 30)
				drawSamples(&b, m, func(v, aside float64) (float64, float64) { return mid + aside, y.Position(v) }, verticalAxis)
			}
		}
		x := placeLeft + float64(k)*placeWidth/3 // of the legend
		fmt.Fprintf(&b, `<circle cx="%.0f" cy="%d" r="3.5"/><text x="%.0f" y="%d">%s</text></g>`, x+4, placeTop+placeHeight+58, x+13, placeTop+placeHeight+62, kit.Escape(s.name))
	}
	b.WriteString("</svg>")
	return template.HTML(b.String())
}

// timeOf formats a number of microseconds.
func timeOf(us float64) string { return (&Measured{Unit: Microseconds}).In(us) }

const verticalAxis, horizontalAxis = true, false

// drawSamples draws a dot per sample and a line for the median. Of many samples it draws the first,
// the least and the greatest. at returns the position of a value; aside displaces dots slightly, so
// that equal samples are visible. vertical is set if the axis of values is vertical.
func drawSamples(b *strings.Builder, m *Measured, at func(v, aside float64) (x, y float64), vertical bool) {
	const maxDots = 60
	shown := m.Samples
	if len(shown) > maxDots {
		shown = slices.Concat(shown[:maxDots-2], []float64{m.Least, m.Most})
	}
	fmt.Fprintf(b, `<g><title>%s: %s (%s to %s)</title>`, kit.Escape(m.Name), kit.Escape(m.In(m.Median)), kit.Escape(m.In(m.Least)), kit.Escape(m.In(m.Most)))
	for i, v := range shown {
		aside := float64(i%5-2) * 1.3
		x, y := at(v, aside)
		fmt.Fprintf(b, `<circle class="s" cx="%.1f" cy="%.1f" r="2.2"/>`, x, y)
	}
	x, y := at(m.Median, 0)
	if vertical {
		fmt.Fprintf(b, `<path class="median" d="M%.1f %.1fh14"/>`, x-7, y)
	} else {
		fmt.Fprintf(b, `<path class="median" d="M%.1f %.1fv12"/>`, x, y-6)
	}
	b.WriteString("</g>")
}

// Charts with a row per measurement.
const (
	stripLeft, stripTop = 230, 8
	stripWidth          = 600
	stripRow            = 19
)

// drawTimes draws measured times on a logarithmic axis.
func drawTimes(all []*Measured) template.HTML {
	if len(all) == 0 {
		return ""
	}
	var values []float64
	for _, m := range all {
		values = append(values, m.Samples...)
	}
	return drawStrips(all, kit.Decades(values, stripLeft, stripWidth), timeOf, "")
}

// drawTimers draws times as multiples of nominal timer values. A band marks the multiples that IBTA
// allows an ACK timeout, from 1 to 4. Samples beyond maxShown are drawn at the end of the axis.
func drawTimers(all []*Measured) template.HTML {
	if len(all) == 0 {
		return ""
	}
	const maxAllowed, maxShown = 4, 20
	greatest := float64(maxAllowed)
	for _, m := range all {
		greatest = max(greatest, m.Most)
	}
	x := kit.Scale{To: min(math.Ceil(greatest), maxShown), At: stripLeft, Len: stripWidth}
	height := stripRow * len(all)
	allowed := fmt.Sprintf(`<rect class="fine" x="%.1f" y="%d" width="%.1f" height="%d"/>`, x.Position(1), stripTop, x.Position(maxAllowed)-x.Position(1), height)
	return drawStrips(all, x, func(v float64) string { return fmt.Sprintf("%.0f ×", v) }, allowed)
}

// drawStrips draws a row of samples for each measurement. format formats a value of the axis;
// background is SVG below the samples.
func drawStrips(all []*Measured, x kit.Scale, format func(float64) string, background string) template.HTML {
	var b strings.Builder
	height := stripRow * len(all)
	fmt.Fprintf(&b, `<svg class="chart" viewBox="0 0 %d %d" role="img" aria-label="samples of each measurement">%s`, stripLeft+stripWidth+110, stripTop+height+26, background)
	for _, v := range x.Marks() {
		fmt.Fprintf(&b, `<path class="grid" d="M%.1f %dv%d"/><text x="%.1f" y="%d" text-anchor="middle">%s</text>`, x.Position(v), stripTop, height, x.Position(v), stripTop+height+18, kit.Escape(format(v)))
	}
	for i, m := range all {
		y := stripTop + stripRow*(float64(i)+.5)
		fmt.Fprintf(&b, `<g class="write"><text x="%d" y="%.1f" text-anchor="end">%s</text>`, stripLeft-10, y+4, kit.Escape(m.Name))
		drawSamples(&b, m, func(v, aside float64) (float64, float64) { return min(x.Position(v), stripLeft+stripWidth), y + aside }, horizontalAxis)
		fmt.Fprintf(&b, `<text class="axis" x="%d" y="%.1f">%s</text></g>`, stripLeft+stripWidth+12, y+4, kit.Escape(m.In(m.Median)))
	}
	b.WriteString("</svg>")
	return template.HTML(b.String())
}
