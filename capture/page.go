package capture

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/fabrictest/fabrictest/internal/cli"
)

// pageLines is the number of lines buffered to compute column widths. Later lines only widen them.
const pageLines = 200

// page is a buffer of lines with the column widths.
type page struct {
	stream       *Stream
	lines        []line
	widths       [numColumns]int
	live         bool
	firstPrinted bool // the first page has been printed
}

// appendLine buffers a line, and prints the page if it is full. Lines after the first page, and of
// live captures, are printed at once.
func (p *Printer) appendLine(l line) error {
	p.page.lines = append(p.page.lines, l)
	if p.page.live || p.page.firstPrinted || len(p.page.lines) >= pageLines {
		return p.flushPage()
	}
	return nil
}

func (p *Printer) appendText(text string) error { return p.appendLine(line{text: text}) }

// flushPage prints the buffered lines, with columns as wide as their widest text so far. Lines with
// text, such as hex dumps, have no columns; further PDUs of a packet (more) omit the endpoints.
func (p *Printer) flushPage() error {
	for i := range p.page.lines {
		l := &p.page.lines[i]
		if l.text != "" {
			continue
		}
		if !l.more {
			l.cols[colEndpoints] = l.endpoints.format(p.page.stream)
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
	if len(p.page.lines) > 0 {
		p.page.firstPrinted = true
	}
	p.page.lines = p.page.lines[:0]
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

// format aligns, truncates and colours a line, which leaves the last column of the terminal free.
// It truncates the summary, to minSummary at least, before the marks.
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
	const minSummary = 16
	const beforeMarks = "  "
	marks := markText(l)
	room := -1 // for the summary; no limit
	if p.opts.Width > 0 {
		room = max(p.opts.Width-1-used, 0)
		if n := utf8.RuneCountInString(marks); n > 0 {
			room = max(room-len(beforeMarks)-n, min(room, minSummary))
		}
	}
	colour := ""
	if l.dimmed {
		colour = dim
	}
	put(truncate(l.summary, room), colour)
	if marks != "" {
		if p.opts.Width > 0 {
			marks = truncate(marks, max(p.opts.Width-1-used-len(beforeMarks), 0))
		}
		put(beforeMarks, "")
		put(marks, markColour(l.marks))
	}
	return strings.TrimRight(b.String(), " ") + "\n"
}

// colourOf returns the escape sequence for the protocol and operation of a line; empty for none.
func (p *Printer) colourOf(l *line) string {
	switch {
	case l.dimmed:
		return dim
	case l.connSetup:
		return cyan
	case l.cols[colOp] != "":
		return green
	}
	return ""
}

// markText formats marks after "! ", with comments in quotes. It omits a text that the summary has.
func markText(l *line) string {
	texts := make([]string, 0, len(l.marks))
	for _, m := range l.marks {
		text := cli.PrintableLine(m.Text)
		switch {
		case m.Kind == MarkComment:
			text = "“" + text + "”"
		case strings.Contains(l.summary, text):
			text = m.Kind.String()
		default:
			text = m.Kind.String() + ": " + text
		}
		texts = append(texts, text)
	}
	if len(texts) == 0 {
		return ""
	}
	return "! " + strings.Join(texts, "; ")
}

// markColour returns the colour of marks: red if one is an error, else yellow.
func markColour(all []Mark) string {
	for _, m := range all {
		switch m.Kind {
		case MarkChecksum, MarkNak, MarkRejected, MarkMalformed:
			return red
		}
	}
	return yellow
}

// truncate shortens s to n runes; n < 0 means no limit.
func truncate(s string, n int) string {
	if n < 0 || utf8.RuneCountInString(s) <= n {
		return s
	}
	if n == 0 {
		return ""
	}
	runes := []rune(s)
	return strings.TrimRight(string(runes[:n-1]), " ") + "…"
}

// ViewerCommand returns the command line that opens a capture in Wireshark. If asText is set, or
// there is no Wireshark or no display, the command prints the capture with tshark.
func ViewerCommand(ctx context.Context, file string, asText bool) ([]string, error) {
	tshark, noTshark := exec.LookPath("tshark")
	gui, noGUI := exec.LookPath("wireshark")
	if noGUI != nil && noTshark != nil {
		return nil, ErrNotInstalled
	}
	options := tsharkArgs(heuristics) // without tshark, assume the dissectors of Wireshark 4
	if noTshark == nil {
		options = TsharkOptions(ctx, tshark, file)
	}
	hasDisplay := os.Getenv("DISPLAY") != "" || os.Getenv("WAYLAND_DISPLAY") != "" || runtime.GOOS == "darwin"
	if asText || noGUI != nil || !hasDisplay {
		if noTshark != nil {
			return nil, fmt.Errorf("tshark, which prints the capture if text is asked for or %s has no display, is not on PATH: install it (apt install tshark), or open %s elsewhere", gui, file)
		}
		return append([]string{tshark, "-r", file}, options...), nil
	}
	return append(append([]string{gui}, options...), "-r", file), nil
}

// Find returns the captures in the folder of a run whose paths below the folder contain all words.
// If run is a file, that is the capture.
func Find(run string, words []string) ([]string, error) {
	if info, err := os.Stat(run); err != nil {
		return nil, err
	} else if !info.IsDir() {
		return []string{run}, nil
	}
	var all []string
	err := filepath.WalkDir(run, func(name string, e fs.DirEntry, err error) error {
		base := strings.TrimSuffix(name, ".gz")
		if err == nil && e.Type().IsRegular() && (strings.HasSuffix(base, ".pcapng") || strings.HasSuffix(base, ".pcap")) {
			all = append(all, name)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no capture: run it again with --capture all", run)
	}
	chosen := slices.DeleteFunc(slices.Clone(all), func(file string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(file[len(run):], w) })
	})
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no capture in %s has %s in its path; there are:\n  %s", run, strings.Join(words, " and "), strings.Join(all, "\n  "))
	}
	return chosen, nil
}
