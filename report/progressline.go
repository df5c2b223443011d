package report

import (
	"fmt"
	"io"
	"time"

	"github.com/fabrictest/fabrictest/internal/textfmt"
)

// ProgressLine shows the progress of a measurement: one line that changes on a terminal,
// otherwise a line every ten seconds.
type ProgressLine struct {
	to       io.Writer
	terminal bool
	last     time.Time
}

// NewProgressLine makes a progress line on a terminal, or on any other writer.
func NewProgressLine(to io.Writer, terminal bool) *ProgressLine {
	return &ProgressLine{to: to, terminal: terminal}
}

// Report shows the current step, and the part that is done.
func (p *ProgressLine) Report(doing string, done float64) {
	switch {
	case p.terminal:
		fmt.Fprintf(p.to, "\r\x1b[K%3.0f %%  %s", 100*done, textfmt.PrintableLine(doing))
	case time.Since(p.last) >= 10*time.Second:
		p.last = time.Now()
		fmt.Fprintf(p.to, "%3.0f %%  %s\n", 100*done, doing)
	}
}

// Clear removes the line from a terminal.
func (p *ProgressLine) Clear() {
	if p.terminal {
		fmt.Fprint(p.to, "\r\x1b[K")
	}
}
