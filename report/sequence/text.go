package sequence

import (
	"fmt"
	"io"
	"strings"

	"github.com/fabrictest/fabrictest/internal/cli"
)

// WriteText writes the diagram as text: a line for each event, with the lanes on the left.
func (d *Diagram) WriteText(w io.Writer) error {
	t := &textDiagram{timeline: newTimeline(d, true)}
	t.width = min(9, max(2, 120/max(len(t.lanes), 1)))
	t.open = make([]bool, len(t.lanes))
	t.header()
	for i := range t.events {
		t.line(i)
	}
	_, err := io.WriteString(w, t.out.String())
	return err
}

// textDiagram is a diagram as text.
type textDiagram struct {
	*timeline
	out   strings.Builder
	width int    // of a lane
	open  []bool // the rank is in a call, by lane
}

// timeWidth is the width of the times, with the space after them.
const timeWidth = 14

func (t *textDiagram) header() {
	line := strings.Repeat(" ", timeWidth)
	for _, l := range t.lanes {
		name := l.name
		if t.width < 9 { // numbers only
			name = strings.TrimPrefix(strings.TrimPrefix(name, "rank "), "host ")
		}
		line += fmt.Sprintf("%-*.*s", t.width, t.width-1, name)
	}
	fmt.Fprintln(&t.out, strings.TrimRight(line, " "))
}

// line writes the line of an event, if it has one.
func (t *textDiagram) line(i int) {
	e := &t.events[i]
	switch {
	case !t.isStep(e), i > 0 && t.isMoment(i-1) && t.sender(i) < 0:
		return
	case e.kind == choiceMade || e.kind == failed:
		fmt.Fprintf(&t.out, "%*v  ==> %s\n", timeWidth-2, e.at, t.describe(e))
		return
	case e.kind == omitted:
		fmt.Fprintf(&t.out, "%*v  %s\n", timeWidth-2, e.at, t.describe(e))
		return
	}
	text := t.describe(e)
	lanes := t.draw(e)
	if e.kind == callBegan {
		text = t.callText(i)
		if t.isMoment(i) {
			lanes[e.lane*t.width], t.open[e.lane] = 'o', false
		}
	} else if from := t.sender(i); from >= 0 {
		text += fmt.Sprintf(", with the message of %s", t.lanes[from].name)
		drawArrow(lanes, from*t.width, e.lane*t.width, '=')
	}
	fmt.Fprintf(&t.out, "%*v  %s  %s\n", timeWidth-2, e.at, string(lanes), text)
}

// callText describes a call that begins.
func (t *textDiagram) callText(i int) string {
	e := &t.events[i]
	c := &t.d.Calls[e.index]
	text := t.describe(e)
	if at := place(&c.Place); at != "" {
		text += "  (" + at + ")"
	}
	if why := t.d.bad(c); why != "" {
		text += "  ==> " + cli.PrintableLine(why)
	}
	if c.End < 0 {
		text += "  ==> it does not return"
	}
	return text
}

// isMoment reports whether the next event is the end of the call that begins, at the same time.
func (t *timeline) isMoment(i int) bool {
	if t.events[i].kind != callBegan || i+1 == len(t.events) {
		return false
	}
	next := &t.events[i+1]
	return next.kind == callEnded && next.lane == t.events[i].lane && next.at == t.events[i].at
}

// sender returns the lane of the sender of the message that a call returns with; -1 if there is none.
func (t *timeline) sender(i int) int {
	if e := &t.events[i]; e.kind == callEnded {
		for _, m := range t.d.Messages {
			if m.To == e.index && m.From >= 0 {
				return t.ofRank[t.d.Calls[m.From].Rank]
			}
		}
	}
	return -1
}

// draw draws the lanes of the line of an event: a bar for each rank, thick during a call.
func (t *textDiagram) draw(e *event) []rune {
	line := []rune(strings.Repeat(" ", t.width*(len(t.lanes)-1)+1))
	for i := range t.lanes {
		line[i*t.width] = '|'
		if t.open[i] {
			line[i*t.width] = '#'
		}
	}
	at := e.lane * t.width
	switch e.kind {
	case callBegan:
		line[at], t.open[e.lane] = '[', true
	case callEnded:
		line[at], t.open[e.lane] = ']', false
	case rankEnded:
		line[at], t.open[e.lane] = 'x', false
	case packetArrived:
		drawArrow(line, e.other*t.width, at, '-')
	case packetSent:
		drawArrow(line, at, e.other*t.width, '-')
		line[(at+e.other*t.width)/2] = 'X'
	}
	return line
}

// drawArrow draws an arrow between two columns of a line, over the lanes between them.
func drawArrow(line []rune, from, to int, stroke rune) {
	left, right := min(from, to), max(from, to)
	for i := left + 1; i < right; i++ {
		line[i] = stroke
	}
	switch {
	case to > from:
		line[right-1] = '>'
	case to < from:
		line[left+1] = '<'
	}
}
