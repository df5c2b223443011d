package conform

import (
	"fmt"
	"html"
	"html/template"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/report/internal/kit"
)

// Columns of a ladder: times, the application on the device, the device, the peer.
const (
	ladderWidth = 1080
	timeEnd     = 78
	appLane     = 104
	deviceLane  = 430
	peerLane    = 1050

	ladderTop  = 34
	lineHeight = 14
	stepPad    = 16  // padding of a step
	charWidth  = 6.7 // width of a character
	pauseFrom  = 10 * time.Millisecond
)

// ladder is a drawing that is built from top to bottom.
type ladder struct {
	strings.Builder
	y float64
}

// drawLadder draws the ladder diagram of a case as SVG. If it finds the step that caused a failure,
// it writes the expected behaviour below that step, else the expected and the observed behaviour
// at the end. All texts are escaped.
func drawLadder(r *Result) template.HTML {
	d := &ladder{y: ladderTop}
	culprit := culpritOf(r)
	last := time.Duration(0)
	for i, s := range r.Ladder.Steps {
		if i > 0 && s.Kind != Gap && s.At-last >= pauseFrom {
			d.drawPause(cli.Duration((s.At - last).Round(time.Microsecond)))
		}
		last = s.At
		d.drawStep(&s, i == culprit)
		if i == culprit {
			d.drawWanted(r.Want)
		}
	}
	if culprit < 0 {
		d.drawOutcome(r)
	}
	var head strings.Builder
	height := d.y + 8
	fmt.Fprintf(&head, `<svg class="ladder" viewBox="0 0 %d %.0f" role="img" aria-label="what happened, step by step">`, ladderWidth, height)
	for _, lane := range []struct {
		x, labelX float64
		name      string
		anchor    string // of the label
	}{{appLane, appLane - 14, "application", "start"}, {deviceLane, deviceLane, "device", "middle"}, {peerLane, peerLane + 14, "peer", "end"}} {
		fmt.Fprintf(&head, `<text class="lane" x="%.0f" y="14" text-anchor="%s">%s</text><path class="life" d="M%.0f 22V%.0f"/>`, lane.labelX, lane.anchor, lane.name, lane.x, height)
	}
	return template.HTML(head.String() + d.String() + "</svg>")
}

// culpritOf guesses the index of the step that caused the failure: the last step of the device or
// the application whose text is part of Got; -1 if there is none. It skips short texts, which
// would match by chance.
func culpritOf(r *Result) int {
	const minText = 4
	for i := len(r.Ladder.Steps) - 1; i >= 0; i-- {
		s := &r.Ladder.Steps[i]
		if len(s.Text) >= minText && s.Kind != Sent && s.Kind != Gap && strings.Contains(r.Got, s.Text) {
			return i
		}
	}
	return -1
}

// letters returns the number of characters that fit into a width.
func letters(width float64) int { return int(width / charWidth) }

// drawStep draws a step: a packet, FIN or reset as an arrow, omitted steps as a text, anything else
// as a note. The step that caused the failure is highlighted.
func (d *ladder) drawStep(s *Step, culprit bool) {
	class := "step " + s.Kind
	if arrows[s.Kind] == "" { // an unknown kind
		class = "step " + Note
	}
	if culprit {
		class += " culprit"
	}
	fmt.Fprintf(d, `<g class="%s">`, class)
	switch s.Kind {
	case Gap:
		fmt.Fprintf(d, `<text class="pause" x="%d" y="%.1f" text-anchor="middle">⋮ %s ⋮</text>`, (deviceLane+peerLane)/2, d.y+12, kit.Escape(s.Text))
		d.y += 24
	case Sent, FinSent:
		d.drawArrow(s, peerLane, deviceLane)
	case Received, FinReceived, Reset:
		d.drawArrow(s, deviceLane, peerLane)
	default:
		d.drawNote(s)
	}
	d.WriteString("</g>")
}

// drawTime writes the time of a step into the first column.
func (d *ladder) drawTime(at time.Duration, y float64) {
	fmt.Fprintf(d, `<text class="at" x="%d" y="%.1f" text-anchor="end">%s</text>`, timeEnd, y, Clock(at))
}

// drawArrow draws a message between two lanes with its text above. A reset is crossed out.
func (d *ladder) drawArrow(s *Step, from, to float64) {
	lo, hi := min(from, to), max(from, to)
	lines := wrap(cli.PrintableLine(s.Text), letters(hi-lo-28), 4)
	for i, l := range lines {
		fmt.Fprintf(d, `<text x="%.0f" y="%.1f" text-anchor="middle">%s</text>`, (lo+hi)/2, d.y+10+float64(i*lineHeight), html.EscapeString(l))
	}
	y := d.y + float64(len(lines)*lineHeight) + 3
	// The line ends inside the arrowhead, whose point is at to.
	lineEnd, headBase := to-7, to-9
	if to < from {
		lineEnd, headBase = to+7, to+9
	}
	fmt.Fprintf(d, `<path class="wire" d="M%.0f %.1fH%.0f"/><path class="tip" d="M%.0f %.1fL%.0f %.1fV%.1fZ"/>`, from, y, lineEnd, to, y, headBase, y-4.5, y+4.5)
	if s.Kind == Reset {
		fmt.Fprintf(d, `<path class="wire" d="M%.0f %.1fl10 10m0 -10l-10 10"/>`, (lo+hi)/2-5, y-5)
	}
	d.drawTime(s.At, y+3.5)
	d.y += float64(len(lines)*lineHeight) + stepPad - 2
}

// drawNote draws an action of the application: a post as an arrow to the device, a completion
// or an event as an arrow from it, anything else as a dot.
func (d *ladder) drawNote(s *Step) {
	lines := wrap(cli.PrintableLine(s.Text), letters(deviceLane-appLane-34), 5)
	for i, l := range lines {
		fmt.Fprintf(d, `<text x="%d" y="%.1f">%s</text>`, appLane+16, d.y+10+float64(i*lineHeight), html.EscapeString(l))
	}
	y := d.y + 6
	switch {
	case strings.HasPrefix(s.Text, "post "):
		y = d.y + float64(len(lines)*lineHeight) + 3
		fmt.Fprintf(d, `<path class="call" d="M%d %.1fH%d"/><path class="tip" d="M%d %.1fl-9 -4v8z"/>`, appLane, y, deviceLane-8, deviceLane, y)
	case strings.HasPrefix(s.Text, "completion ") || strings.HasPrefix(s.Text, "event "):
		y = d.y + float64(len(lines)*lineHeight) + 3
		fmt.Fprintf(d, `<path class="call" d="M%d %.1fH%d"/><path class="tip" d="M%d %.1fl9 -4v8z"/>`, deviceLane, y, appLane+8, appLane, y)
	default:
		fmt.Fprintf(d, `<circle class="dot" cx="%d" cy="%.1f" r="3.2"/>`, appLane, y)
	}
	d.drawTime(s.At, y+3.5)
	d.y += float64(len(lines)*lineHeight) + stepPad - 4
}

// drawPause draws a gap in time with its duration.
func (d *ladder) drawPause(text string) {
	for _, x := range []int{appLane, deviceLane, peerLane} {
		fmt.Fprintf(d, `<path class="cut" d="M%d %.1fv12"/>`, x, d.y+1)
	}
	fmt.Fprintf(d, `<text class="pause" x="%d" y="%.1f" text-anchor="middle">%s pass</text>`, (deviceLane+peerLane)/2, d.y+11, kit.Escape(text))
	d.y += 22
}

// drawWanted writes the expected behaviour below the step that caused the failure.
func (d *ladder) drawWanted(want string) {
	lines := wrap("want "+cli.PrintableLine(want), letters(peerLane-deviceLane-28), 4)
	d.WriteString(`<g class="wanted">`)
	for i, l := range lines {
		fmt.Fprintf(d, `<text x="%d" y="%.1f" text-anchor="middle">%s</text>`, (deviceLane+peerLane)/2, d.y+9+float64(i*lineHeight), html.EscapeString(l))
	}
	d.WriteString("</g>")
	d.y += float64(len(lines)*lineHeight) + 8
}

// drawOutcome writes the expected and observed behaviour at the end.
func (d *ladder) drawOutcome(r *Result) {
	if r.Want == "" && r.Got == "" {
		return
	}
	const left, pad, label = appLane, 12, 52
	room := letters(peerLane - left - 2*pad - label)
	want, got := wrap(cli.PrintableLine(r.Want), room, 5), wrap(cli.PrintableLine(r.Got), room, 5)
	top := d.y + 8
	height := float64((len(want)+len(got))*lineHeight) + 2*pad + 4
	fmt.Fprintf(d, `<g class="outcome"><rect x="%d" y="%.1f" width="%d" height="%.1f" rx="6"/>`, left, top, peerLane-left, height)
	y := top + pad + 9
	for _, part := range []struct {
		name  string
		lines []string
	}{{"want", want}, {"got", got}} {
		fmt.Fprintf(d, `<text class="%s label" x="%d" y="%.1f">%s</text>`, part.name, left+pad, y, part.name)
		for _, l := range part.lines {
			fmt.Fprintf(d, `<text class="%s" x="%d" y="%.1f">%s</text>`, part.name, left+pad+label, y, html.EscapeString(l))
			y += lineHeight
		}
		y += 4
	}
	d.WriteString("</g>")
	d.y = top + height
}

// wrap breaks a text into at most maxLines lines of at most n characters. The last ends with "…" if
// text was cut off.
func wrap(s string, n, maxLines int) (lines []string) {
	line := ""
	for _, w := range strings.Fields(s) {
		for utf8.RuneCountInString(w) > n { // a word longer than a line
			r := []rune(w)
			if line != "" {
				lines, line = append(lines, line), ""
			}
			lines, w = append(lines, string(r[:n])), string(r[n:])
		}
		switch {
		case line == "":
			line = w
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(w) <= n:
			line += " " + w
		default:
			lines, line = append(lines, line), w
		}
	}
	if line != "" || len(lines) == 0 {
		lines = append(lines, line)
	}
	if len(lines) > maxLines {
		lines = lines[:maxLines]
		if r := []rune(lines[maxLines-1]); len(r) > n-2 {
			lines[maxLines-1] = string(r[:n-2])
		}
		lines[maxLines-1] += " …"
	}
	return lines
}

// arrows are the directions of steps: the device is on the left, the peer on the right.
var arrows = map[string]string{Sent: "<--", FinSent: "<--", Received: "-->", FinReceived: "-->", Reset: "-x-", Note: "   ", Gap: " : "}

// Text formats the ladder as text, with the device on the left.
func (l *Ladder) Text() string {
	var b strings.Builder
	for _, s := range l.Steps {
		at := Clock(s.At)
		if s.Kind == Gap {
			at = ""
		}
		fmt.Fprintf(&b, "%12s  %s  %s\n", at, arrows[s.Kind], cli.PrintableLine(s.Text))
	}
	return b.String()
}

// Clock formats the time since the start of a case, with a resolution of 0.1 µs.
func Clock(t time.Duration) string {
	t = t.Round(100 * time.Nanosecond)
	switch {
	case t < time.Millisecond:
		return fmt.Sprintf("%.1f µs", float64(t)/1e3)
	case t < time.Second:
		return fmt.Sprintf("%.4f ms", float64(t)/1e6)
	default:
		return fmt.Sprintf("%.7f s", t.Seconds())
	}
}
