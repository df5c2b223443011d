package show

import (
	"strings"
	"unicode/utf8"

	"github.com/fabrictest/fabrictest/capture"
	"github.com/fabrictest/fabrictest/internal/visible"
)

// pageLines is how many lines are kept back to find out how wide columns are.
// After that they only grow.
const pageLines = 200

// page is lines that are yet to be printed, and the widths so far.
type page struct {
	stream *capture.Stream
	lines  []line
	widths [numColumns]int
	live   bool
	begun  bool // widths are settled
}

func (p *Printer) keep(l line) error {
	p.page.lines = append(p.page.lines, l)
	if p.page.live || p.page.begun || len(p.page.lines) >= pageLines {
		return p.flushPage()
	}
	return nil
}

func (p *Printer) keepText(text string) error { return p.keep(line{text: text}) }

func (p *Printer) flushPage() error {
	for i := range p.page.lines {
		l := &p.page.lines[i]
		if l.text != "" {
			continue
		}
		if !l.more {
			l.cols[colEnds] = l.ends.in(p.page.stream)
		}
		for c, text := range l.cols {
			p.page.widths[c] = max(p.page.widths[c], utf8.RuneCountInString(text))
		}
	}
	for i := range p.page.lines {
		if _, err := p.w.WriteString(p.format(&p.page.lines[i])); err != nil {
			return err
		}
		p.page.lines[i] = line{}
	}
	p.page.lines, p.page.begun = p.page.lines[:0], len(p.page.lines) > 0 || p.page.begun
	return nil
}

// Escape sequences.
const (
	reset  = "\x1b[0m"
	dim    = "\x1b[2m"
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	cyan   = "\x1b[36m"
)

// format aligns a line, cuts it to the width, and colours it. Marks are what one
// looks for: the summary gives way to them.
func (p *Printer) format(l *line) string {
	if l.text != "" {
		return l.text
	}
	var b strings.Builder
	used := 0
	put := func(text, colour string) {
		used += utf8.RuneCountInString(text)
		if p.opts.Colour && colour != "" && strings.TrimSpace(text) != "" {
			text = colour + text + reset
		}
		b.WriteString(text)
	}
	for i, c := range l.cols {
		width := p.page.widths[i]
		if width == 0 {
			continue
		}
		pad := strings.Repeat(" ", width-utf8.RuneCountInString(c))
		switch i {
		case colNumber, colTime:
			put(pad+c+"  ", dim)
		case colProtocol, colOp:
			put(c, p.colourOf(l))
			put(pad+"  ", "")
		default:
			put(c+pad+"  ", "")
		}
	}
	marks := markWords(l)
	room := -1
	if p.opts.Width > 0 {
		room = max(p.opts.Width-used-1, 0)
		if n := utf8.RuneCountInString(marks); n > 0 {
			room = max(room-n-2, min(room, 16))
		}
	}
	colour := ""
	if l.quiet {
		colour = dim
	}
	put(cut(l.summary, room), colour)
	if marks != "" {
		if p.opts.Width > 0 {
			marks = cut(marks, max(p.opts.Width-used-2-1, 0))
		}
		put("  ", "")
		put(marks, markColour(l.marks))
	}
	return strings.TrimRight(b.String(), " ") + "\n"
}

func (p *Printer) colourOf(l *line) string {
	switch {
	case l.quiet:
		return dim
	case l.setup:
		return cyan
	case l.cols[colOp] != "":
		return green
	}
	return ""
}

// markWords prints marks behind an exclamation mark, comments in quotes. What
// the summary says already is not said twice.
func markWords(l *line) string {
	words := make([]string, 0, len(l.marks))
	for _, m := range l.marks {
		text := visible.Line(m.Text)
		switch {
		case m.Kind == capture.MarkComment:
			text = "“" + text + "”"
		case strings.Contains(l.summary, text):
			text = m.Kind.String()
		default:
			text = m.Kind.String() + ": " + text
		}
		words = append(words, text)
	}
	if len(words) == 0 {
		return ""
	}
	return "! " + strings.Join(words, "; ")
}

func markColour(all []capture.Mark) string {
	for _, m := range all {
		switch m.Kind {
		case capture.MarkChecksum, capture.MarkNak, capture.MarkRejected, capture.MarkMalformed:
			return red
		}
	}
	return yellow
}

// cut shortens s to n runes; n < 0 is no limit.
func cut(s string, n int) string {
	if n < 0 || utf8.RuneCountInString(s) <= n {
		return s
	}
	if n == 0 {
		return ""
	}
	runes := []rune(s)
	return strings.TrimRight(string(runes[:n-1]), " ") + "…"
}
