package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"
)

// table prints rows as scenarios end, and a line of progress while they run.
type table struct {
	w      io.Writer
	status io.Writer // a terminal; nil if there is none
	colour bool
	total  int
	group  string
	err    error
}

func newTable(out, status io.Writer, total int, quirks []string) *table {
	t := &table{w: out, total: total, colour: isTerminal(out) && os.Getenv("NO_COLOR") == ""}
	if isTerminal(status) && isTerminal(out) {
		t.status = status
	}
	if len(quirks) > 0 {
		t.print("every NIC has: " + strings.Join(quirks, ", ") + "\n\n")
	}
	t.line(header)
	return t
}

// isTerminal reports whether w is a character device that shows what it is sent.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && f.Name() != os.DevNull
}

// Columns of the table: the first two are text, the rest figures. A line has no
// more than 100 characters.
var (
	header = []string{"service", "network", "messages", "delivered", "bytes", "lost", "resent", "time", "goodput", "ok?"}
	widths = []int{7, 15, 8, 9, 9, 6, 6, 8, 10, 4}
)

// line prints one line of cells.
func (t *table) line(cells []string) {
	var b strings.Builder
	for i, c := range cells {
		if i > 0 {
			b.WriteString("  ")
		}
		pad := strings.Repeat(" ", max(0, widths[i]-utf8.RuneCountInString(c)))
		switch {
		case i == len(cells)-1:
			b.WriteString(t.paint(c))
		case i < 2:
			b.WriteString(c + pad)
		default:
			b.WriteString(pad + c)
		}
	}
	t.print(b.String() + "\n")
}

func (t *table) print(s string) {
	t.clear()
	if _, err := io.WriteString(t.w, s); err != nil && t.err == nil {
		t.err = err
	}
}

// paint colours a verdict.
func (t *table) paint(s string) string {
	switch {
	case t.colour && s == verdictOK:
		return "\x1b[32m" + s + "\x1b[0m"
	case t.colour && s == verdictFail:
		return "\x1b[1;31m" + s + "\x1b[0m"
	}
	return s
}

const (
	verdictOK   = "ok"
	verdictFail = "FAIL"
)

func (t *table) progress(done int, id string) {
	if t.status != nil {
		fmt.Fprintf(t.status, "\r\x1b[K%d of %d done, waiting for %s", done, t.total, id)
	}
}

func (t *table) clear() {
	if t.status != nil {
		io.WriteString(t.status, "\r\x1b[K")
	}
}

func (t *table) abandon() { t.clear() }

func (t *table) row(o *outcome) {
	if o.Network != t.group {
		t.print("\n")
		t.group = o.Network
	}
	verdict := verdictOK
	if !o.OK {
		verdict = verdictFail
	}
	t.line([]string{
		o.Service, o.Network, fmt.Sprint(o.Messages), fmt.Sprint(o.Delivered), byteCount(o.Bytes),
		fmt.Sprint(o.PacketsLost), fmt.Sprint(o.Resent), duration(o.Elapsed), bitRate(o.GoodputBps), verdict,
	})
}

// finish says what it all means and how to have it again.
func (t *table) finish(s *summary) error {
	var b bytes.Buffer
	messages, moved := 0, int64(0)
	for i := range s.Rows {
		messages += s.Rows[i].Delivered
		moved += s.Rows[i].Bytes
	}
	fmt.Fprintf(&b, "\nlost and resent count packets; time is virtual, and goodput is what was delivered in it,\nall hosts together.\n")
	for i := range s.Rows {
		if r := &s.Rows[i]; !r.OK {
			fmt.Fprintf(&b, "\n%s %s: %s\nTo repeat it alone:\n\n    %s\n", t.paint(verdictFail), r.ID, r.Problem, r.Command)
		}
	}
	if s.Failed == 0 {
		fmt.Fprintf(&b, "\n%s held: %d messages, %s, every byte checked.\n", everyScenario(len(s.Rows)), messages, byteCount(moved))
	} else {
		fmt.Fprintf(&b, "\n%d of %s failed.\n", s.Failed, scenarioCount(len(s.Rows)))
	}
	if s.Failed == 0 && len(s.Quirks) > 0 {
		fmt.Fprintf(&b, "Held in spite of %s: not visible in this traffic.\n", strings.Join(s.Quirks, ", "))
	}
	b.WriteString(captured(s.Captures, s.snapLen))
	fmt.Fprintf(&b, "Seed %d. To repeat this run:\n\n    %s\n\n", s.Seed, s.Command)
	fmt.Fprintf(&b, "Wall time %.1f s.\n", s.Wall.Round(time.Millisecond).Seconds())
	t.print(b.String())
	return t.err
}

func everyScenario(n int) string {
	if n == 1 {
		return "The scenario"
	}
	return "All " + scenarioCount(n)
}

func scenarioCount(n int) string {
	if n == 1 {
		return "1 scenario"
	}
	return fmt.Sprintf("%d scenarios", n)
}

// captured says where captures are, and what is not in them.
func captured(files []captureFile, snapLen int) string {
	total := int64(0)
	for _, f := range files {
		total += f.Bytes
	}
	size := byteCount(total)
	if snapLen > 0 {
		size += ", packets cut to their headers (--snaplen 0 keeps all)"
	}
	switch len(files) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("Captured %s, %s.\n", files[0].Name, size)
	default:
		return fmt.Sprintf("Captured %d files in %s, %s.\n", len(files), filepath.Dir(files[0].Name), size)
	}
}
