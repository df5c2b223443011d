package interop

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// Table prints outcomes as they arrive: a line for each row of the matrix with a cell for each
// size, and below the line the faults of the guest's device and the failures.
type Table struct {
	W io.Writer

	row      string
	faults   [2]Faults // of the row, of all
	open     bool
	failures []Outcome
	passed   int
	failed   int
	began    time.Time
}

// Add adds an outcome to the table.
func (t *Table) Add(o Outcome) {
	if t.began.IsZero() {
		t.began = time.Now().Add(-o.Elapsed)
	}
	if row := o.Case.Row(); row != t.row {
		t.endRow()
		fmt.Fprintf(t.W, "%-30s", row)
		t.row, t.open = row, true
	}
	for i := range t.faults {
		t.faults[i].add(o.Faults)
	}
	if o.Err != nil {
		t.failed++
		t.failures = append(t.failures, o)
		fmt.Fprintf(t.W, "  %5d FAIL  ", o.Case.Size)
		return
	}
	t.passed++
	fmt.Fprintf(t.W, "  %5d ok%4.1fs", o.Case.Size, o.Elapsed.Seconds())
}

// endRow ends a line, and prints the faults and failures of its cases.
func (t *Table) endRow() {
	if t.open {
		fmt.Fprintln(t.W)
	}
	if wrong := t.faults[0].String(); wrong != "" {
		fmt.Fprintf(t.W, "    the guest: %s\n", wrong)
	}
	t.faults[0] = Faults{}
	for _, o := range t.failures {
		fmt.Fprintf(t.W, "    FAIL %s: %s\n", o.Case.Name(), indent(o.Err.Error()))
		fmt.Fprintf(t.W, "    guest: %s\n    said: %s\n", o.Command, indent(lastLines(o.Output, 12)))
	}
	t.failures, t.open = nil, false
}

// Close prints the totals, if there are any.
func (t *Table) Close() {
	if t.began.IsZero() {
		return
	}
	t.endRow()
	if wrong := t.faults[1].String(); wrong != "" {
		fmt.Fprintf(t.W, "\nfaults of the guest's device, put up with: %s", wrong)
	}
	fmt.Fprintf(t.W, "\n%d passed, %d failed, %.0f s\n", t.passed, t.failed, time.Since(t.began).Seconds())
}

func indent(s string) string {
	return strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n        ")
}

// lastLines returns the last n lines of s. Lines longer than 120 bytes are cut.
func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	lines = lines[max(len(lines)-n, 0):]
	for i, line := range lines {
		if len(line) > 120 {
			lines[i] = line[:120] + "..."
		}
	}
	return strings.Join(lines, "\n")
}
