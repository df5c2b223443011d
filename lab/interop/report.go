package interop

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/conformance/interop"
	"github.com/fabrictest/fabrictest/lab/kernel"
)

// report has the results of the exchanges, and prints them.
type report struct {
	Ours        string                     `json:"ours"`
	Theirs      string                     `json:"theirs"`
	Impair      kernel.Impairment          `json:"impair"`
	Seed        uint64                     `json:"seed"`
	Began       time.Time                  `json:"began"`
	Seconds     float64                    `json:"seconds"`
	Counts      map[string]int             `json:"counts"`
	Exchanges   []exchangeReport           `json:"exchanges"`
	Connections *interop.ConnectionsResult `json:"connections,omitempty"`
	Link        kernel.Link                `json:"link"`

	w       io.Writer
	command func(exchange string) string
	row     []interop.Result // results of the row that is not yet printed
}

type exchangeReport struct {
	Name    string          `json:"name"`
	Verdict interop.Verdict `json:"verdict"`
	Seconds float64         `json:"seconds"`
	Why     string          `json:"why,omitempty"`
	Command string          `json:"command,omitempty"` // runs the exchange alone
}

// newReport returns a report and prints its title.
func newReport(s *interop.Suite, o *Options) *report {
	r := &report{
		Ours: s.Ours.Name, Theirs: s.Theirs.Name, Impair: o.Guest.Impair, Seed: o.Guest.Seed, Began: time.Now(), Counts: make(map[string]int),
		w: o.Out, command: o.Command,
	}
	fmt.Fprintf(r.w, "%s with %s\n", r.Ours, r.Theirs)
	return r
}

// add adds a result. If the result begins a row, of cases that differ only in size, add prints the
// previous row.
func (r *report) add(res interop.Result) {
	e := exchangeReport{Name: res.Case.Name(), Verdict: res.Verdict, Seconds: res.Took.Seconds(), Why: res.Why}
	if res.Verdict == interop.Fail || res.Verdict == interop.Stale {
		e.Command = r.command(res.Case.Name())
	}
	r.Exchanges = append(r.Exchanges, e)
	r.Counts[string(res.Verdict)]++
	if len(r.row) > 0 && r.row[0].Case.Row() != res.Case.Row() {
		r.printRow()
	}
	r.row = append(r.row, res)
}

// printRow prints a line for the collected row, the cases that differ only in size: its name and
// the verdict of each size. The failures and known failures follow.
func (r *report) printRow() {
	if len(r.row) == 0 {
		return
	}
	sizes := make([]string, 0, len(r.row))
	var took time.Duration
	for _, res := range r.row {
		mark := "ok"
		if res.Verdict != interop.Pass {
			mark = string(res.Verdict)
		}
		sizes = append(sizes, fmt.Sprintf("%d %s", res.Case.Size, mark))
		took += res.Took
	}
	if r.row[0].Verdict == interop.Unsupported {
		sizes = []string{"unsupported: " + r.row[0].Why}
	}
	fmt.Fprintf(r.w, "%-34s %6.1f s  %s\n", r.row[0].Case.Row(), took.Seconds(), strings.Join(sizes, ", "))
	for _, res := range r.row {
		switch res.Verdict {
		case interop.Fail, interop.Stale:
			fmt.Fprintf(r.w, "    %s: %s\n      again: %s\n", res.Case.Name(), strings.ReplaceAll(res.Why, "\n", "\n      "), r.command(res.Case.Name()))
		case interop.Known:
			fmt.Fprintf(r.w, "    %s: %s\n", res.Case.Name(), res.Why)
		}
	}
	r.row = nil
}

// endExchanges prints the last row and the counts.
func (r *report) endExchanges() {
	r.printRow()
	r.Seconds = time.Since(r.Began).Seconds()
	if len(r.Exchanges) == 0 {
		return
	}
	c := func(v interop.Verdict) int { return r.Counts[string(v)] }
	fmt.Fprintf(r.w, "%d exchanges in %.0f s: %d passed, %d failed, %d failed as known, %d stale, %d unsupported\n",
		len(r.Exchanges), r.Seconds, c(interop.Pass), c(interop.Fail), c(interop.Known), c(interop.Stale), c(interop.Unsupported))
}

// printConnections prints how many of Options.Connections succeeded and failed, and leaked objects.
func (r *report) printConnections() {
	t := r.Connections
	if t == nil {
		return
	}
	fmt.Fprintf(r.w, "%d connections in %.0f s, %d failed; objects before: %v, after: %v\n", t.Made, t.Took.Seconds(), len(t.Failed), t.Before, t.After)
	for _, why := range append(t.Failed, t.Leaked...) {
		fmt.Fprintf(r.w, "    %s\n", why)
	}
}

// printLink prints the packets lost by the user-space switch, if one is between host and guest.
func (r *report) printLink() {
	if r.Link.Switched {
		fmt.Fprintf(r.w, "the switch lost %d of %d packets from the guest, and %d of %d to it\n",
			r.Link.Sent.Lost, r.Link.Sent.Packets, r.Link.Received.Lost, r.Link.Received.Packets)
	}
}

func (r *report) ok() bool {
	return r.Counts[string(interop.Fail)] == 0 && r.Counts[string(interop.Stale)] == 0 && (r.Connections == nil || r.Connections.OK())
}

// write writes the report to a file, as JSON.
func (r *report) write(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// Table prints outcomes as they arrive: a line for each row of the matrix with a cell for each
// size, and below the line the faults of the guest's device and the failures.
type Table struct {
	W io.Writer

	row                  string
	rowFaults, allFaults Faults
	open                 bool
	failures             []Outcome
	passed               int
	failed               int
	began                time.Time
}

// Add prints an outcome in the table. A row has the cases that differ only in size.
func (t *Table) Add(o Outcome) {
	if t.began.IsZero() {
		t.began = time.Now().Add(-o.Elapsed)
	}
	if row := o.Case.Row(); row != t.row {
		t.endRow()
		fmt.Fprintf(t.W, "%-30s", row)
		t.row, t.open = row, true
	}
	t.rowFaults.add(o.Faults)
	t.allFaults.add(o.Faults)
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
	if faults := t.rowFaults.String(); faults != "" {
		fmt.Fprintf(t.W, "    the guest: %s\n", faults)
	}
	t.rowFaults = Faults{}
	for _, o := range t.failures {
		fmt.Fprintf(t.W, "    FAIL %s: %s\n", o.Case.Name(), indent(o.Err.Error()))
		fmt.Fprintf(t.W, "    guest: %s\n    said: %s\n", o.Command, indent(lastLines(o.Output, 12)))
	}
	t.failures, t.open = nil, false
}

// Close ends the last row and prints the totals, unless there was no outcome.
func (t *Table) Close() {
	if t.began.IsZero() {
		return
	}
	t.endRow()
	if faults := t.allFaults.String(); faults != "" {
		fmt.Fprintf(t.W, "\nfaults of the guest's device, put up with: %s", faults)
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
