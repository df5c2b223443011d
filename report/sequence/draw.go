package sequence

import (
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/report/internal/kit"
)

const (
	leftMargin = 84.0 // of the times
	laneInset  = 14.0 // from the left of a column to its lane; labels are on the right
	charWidth  = 5.9  // of a label
	minLabel   = 100.0
)

// drawing is the SVG of a timeline.
type drawing struct {
	*timeline
	rows   []row
	of     []int // row of each event
	steps  []int // step of each event, from 1; 0 for one that is no step
	column float64
	bar    float64 // width of a call
	width  float64
	height float64
	svg    strings.Builder
}

// columnWidth returns the width of a column, which depends on their number. Narrow ones have no labels.
func columnWidth(lanes int) float64 {
	switch {
	case lanes <= 4:
		return 230
	case lanes <= 6:
		return 170
	case lanes <= 10:
		return 120
	case lanes <= 20:
		return 40
	}
	return 18
}

// newDrawing lays out a timeline.
func newDrawing(t *timeline) *drawing {
	d := &drawing{timeline: t, steps: make([]int, len(t.events)), column: columnWidth(len(t.lanes)), bar: 9}
	if !d.labels() {
		d.bar = 6
	}
	d.rows, d.of, d.height = t.layOut()
	d.width = leftMargin + d.column*float64(len(t.lanes)) + 20
	n := 0
	for i := range t.events {
		if t.isStep(&t.events[i]) {
			n++
			d.steps[i] = n
		}
	}
	return d
}

func (d *drawing) x(lane int) float64     { return leftMargin + d.column*float64(lane) + laneInset }
func (d *drawing) y(event int) float64    { return d.rows[d.of[event]].y }
func (d *drawing) labels() bool           { return d.column >= minLabel }
func (d *drawing) add(f string, a ...any) { fmt.Fprintf(&d.svg, f, a...) }

// cut cuts a label to the width of a column.
func (d *drawing) cut(text string) string {
	return kit.Cut(text, int((d.column-laneInset-10)/charWidth))
}

// head returns the names of the lanes as SVG.
func (d *drawing) head() template.HTML {
	const height = 26.0
	d.svg.Reset()
	d.add(`<svg class="names" width="%.0f" height="%.0f" aria-hidden="true">`, d.width, height)
	for i, l := range d.lanes {
		name, anchor := l.name, "start"
		if !d.labels() {
			name, anchor = strings.TrimPrefix(strings.Replace(l.name, "host ", "h", 1), "rank "), "middle"
		}
		x := d.x(i)
		if anchor == "start" {
			x -= d.bar / 2
		}
		d.add(`<text x="%.1f" y="17" text-anchor="%s">%s</text>`, x, anchor, kit.Escape(name))
	}
	d.add(`</svg>`)
	return template.HTML(d.svg.String())
}

// body returns the diagram as SVG.
func (d *drawing) body() template.HTML {
	d.svg.Reset()
	d.add(`<svg class="sequence" width="%.0f" height="%.0f" role="img" aria-label="sequence diagram">`, d.width, d.height)
	d.times()
	d.lifelines()
	d.packets()
	d.calls()
	d.messages()
	d.wholeRows()
	d.callLabels()
	d.add(`<path class="cursor" d="M0 0H%.0f"/></svg>`, d.width)
	return template.HTML(d.svg.String())
}

// times labels the rows.
func (d *drawing) times() {
	last := ""
	for _, r := range d.rows {
		first := slices.IndexFunc(r.events, func(i int) bool { return d.steps[i] > 0 })
		if first < 0 {
			continue
		}
		if text := shortTime(d.events[r.events[first]].at); text != last {
			d.add(`<text class="at" x="%.0f" y="%.1f" text-anchor="end">%s</text>`, leftMargin-10, r.y+3.5, text)
			last = text
		}
	}
}

// shortTime formats a virtual time with four digits or more.
func shortTime(t time.Duration) string {
	for _, unit := range []time.Duration{time.Second, time.Millisecond, time.Microsecond} {
		if t >= unit {
			return t.Round(unit / 1000).String()
		}
	}
	return t.String()
}

// lifelines draws the lanes, up to the ends of their ranks.
func (d *drawing) lifelines() {
	until := make([]float64, len(d.lanes))
	for i := range until {
		until[i] = d.height
	}
	for i := range d.events {
		if e := &d.events[i]; e.kind == rankEnded {
			until[e.lane] = d.y(i)
		}
	}
	for i := range d.lanes {
		d.add(`<path class="life" d="M%.1f 0V%.1f"/>`, d.x(i), until[i])
	}
}

// wholeRows draws choices, omitted events and the failure, over all lanes.
func (d *drawing) wholeRows() {
	class := map[kind]string{choiceMade: "choice", omitted: "omitted", failed: "failure"}
	for i := range d.events {
		e := &d.events[i]
		if e.lane >= 0 {
			continue
		}
		r := &d.rows[d.of[i]]
		text := d.describe(e)
		d.add(`<g class="%s" data-s="%d"><rect x="%.0f" y="%.1f" width="%.1f" height="%.1f" rx="4"/><text x="%.0f" y="%.1f">%s</text><title>%s</title></g>`,
			class[e.kind], d.steps[i], leftMargin-4, r.y-r.height/2+3, d.width-leftMargin, r.height-6,
			leftMargin+laneInset+10, r.y+4, kit.Escape(kit.Cut(text, int((d.width-leftMargin-40)/charWidth))), kit.Escape(text))
	}
}

// packets draws arrows from the sending to the arrival of packets; those that are lost end midway.
func (d *drawing) packets() {
	sent := map[int]int{} // event, by packet
	for i := range d.events {
		if e := &d.events[i]; e.kind == packetSent {
			sent[e.index] = i
		}
	}
	for i := range d.events {
		e := &d.events[i]
		p := 0
		if e.kind == packetArrived || e.kind == packetSent {
			p = e.index
		}
		switch {
		case e.kind == packetArrived:
			y := d.y(i)
			if s, ok := sent[p]; ok {
				y = d.y(s)
			}
			d.arrow("packet", d.steps[i], d.x(e.other), y, d.x(e.lane), d.y(i), d.describe(e)+"\n"+d.d.Packets[p].Details)
			below := 0.0
			if e.other > e.lane { // the arrow comes from above on the right
				below = 7
			}
			d.label("packet", i, below, strings.TrimPrefix(d.describe(e), d.lanes[e.other].name+" → "+d.who(e)+": "))
		case e.kind == packetSent && d.d.Packets[p].Lost:
			x := (d.x(e.lane) + d.x(e.other)) / 2
			y := d.y(i)
			d.add(`<g class="packet lost" data-s="%d"><path d="M%.1f %.1fL%.1f %.1f"/><path class="cross" d="m%.1f %.1fl8 8m0-8l-8 8"/><title>%s</title></g>`,
				d.steps[i], d.x(e.lane), y, x, y+rowHeight/2, x-4, y+rowHeight/2-4, kit.Escape(d.describe(e)))
		}
	}
}

// arrow draws an arrow between two lanes.
func (d *drawing) arrow(class string, step int, x0, y0, x1, y1 float64, title string) {
	side := 1.0
	if x1 < x0 {
		side = -1
	}
	x0, x1 = x0+side*d.bar/2, x1-side*(d.bar/2+1)
	d.add(`<g class="%s" data-s="%d"><path d="M%.1f %.1fL%.1f %.1f"/><path class="tip" d="M%.1f %.1fl%.1f -3.5v7z"/><title>%s</title></g>`,
		class, step, x0, y0, x1-side*5, y1, x1, y1, -side*7, titleText(title))
}

// titleText escapes the lines of a tooltip.
func titleText(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, kit.Escape(strings.TrimSpace(line)))
	}
	return strings.Join(lines, "\n")
}

// label writes a text on the right of an event's lane, and below it.
func (d *drawing) label(class string, event int, below float64, text string) {
	if d.labels() {
		e := &d.events[event]
		d.add(`<text class="%s" data-s="%d" x="%.1f" y="%.1f">%s</text>`, class, d.steps[event], d.x(e.lane)+10, d.y(event)+3.5+below, kit.Escape(d.cut(text)))
	}
}

// calls draws a bar for each call.
func (d *drawing) calls() {
	open := map[int]int{} // event, by lane
	for i := range d.events {
		switch e := &d.events[i]; e.kind {
		case callBegan:
			open[e.lane] = i
		case callEnded:
			d.drawCall(open[e.lane], i)
			delete(open, e.lane)
		}
	}
	for lane := range d.lanes {
		if i, ok := open[lane]; ok {
			d.drawCall(i, -1)
		}
	}
}

// drawCall draws the bar of the call that begins with an event, and ends with another, or with the run.
func (d *drawing) drawCall(begin, end int) {
	e := &d.events[begin]
	c := &d.d.Calls[e.index]
	class, top, bottom, last := "call "+classOf(c.Call), d.y(begin)-6, d.height-4, 0
	title := fmt.Sprintf("%s\n%s\n%s", d.describe(e), place(&c.Place), c.Source)
	if end >= 0 {
		bottom, last = d.y(end)+6, d.steps[end]
		title += fmt.Sprintf("\n%v to %v", e.at, d.events[end].at)
	} else {
		class += " open"
		title += "\nit does not return"
	}
	if why := d.d.bad(c); why != "" {
		class += " bad"
		title += "\n" + why
	}
	d.add(`<g class="%s" data-s="%d" data-e="%d" data-lane="%d"><rect x="%.1f" y="%.1f" width="%.0f" height="%.1f" rx="2.5"/><title>%s</title></g>`,
		class, d.steps[begin], last, e.lane, d.x(e.lane)-d.bar/2, top, d.bar, bottom-top, titleText(title))
}

// callLabels labels the begins of calls and the ends of ranks.
func (d *drawing) callLabels() {
	for i := range d.events {
		switch e := &d.events[i]; e.kind {
		case callBegan:
			text := strings.TrimPrefix(d.describe(e), d.who(e)+": ")
			class := "named"
			if d.d.bad(&d.d.Calls[e.index]) != "" {
				class += " bad"
			}
			d.label(class, i, 0, text)
		case rankEnded:
			class := "end"
			if d.d.Ranks[e.index].Err != "" {
				class = "end bad"
			}
			d.add(`<path class="%s" data-s="%d" d="M%.1f %.1fh12"/>`, class, d.steps[i], d.x(e.lane)-6, d.y(i))
			d.label(class, i, 0, e.text)
		}
	}
}

// messages draws an arrow from the call that sends a message to the end of the call that receives it.
func (d *drawing) messages() {
	for _, m := range d.d.Messages {
		if m.From < 0 || m.To < 0 || d.first[m.From] < 0 || d.last[m.To] < 0 {
			continue
		}
		from, to := d.first[m.From], d.last[m.To]
		a, b := &d.events[from], &d.events[to]
		if a.lane != b.lane {
			title := fmt.Sprintf("message of %s: %s\nto %s: %s", d.who(a), d.d.Calls[m.From].text(), d.who(b), d.d.Calls[m.To].text())
			d.arrow("message", d.steps[to], d.x(a.lane), d.y(from), d.x(b.lane), d.y(to), title)
		}
	}
}

// classOf returns the kind of a call: point-to-point, collective or on a window.
func classOf(call string) string {
	if strings.HasPrefix(call, "Win") || strings.HasPrefix(call, "Note") {
		return "window"
	}
	name := strings.TrimSuffix(strings.TrimPrefix(call, "I"), "Init")
	for _, c := range []string{"arrier", "cast", "catter", "ather", "lltoall", "educe", "can", "Split", "Dup", "Comm.Free"} {
		if strings.Contains(name, c) {
			return "collective"
		}
	}
	return "message"
}
