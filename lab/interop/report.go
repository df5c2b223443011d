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

// add adds a result. It prints a row when the next one begins.
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

// printRow prints the last row: its name, the verdict of each size, and the failures.
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

// printConnections prints the result of Options.Connections.
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

func (r *report) printLink() {
	if r.Link.Switched {
		fmt.Fprintf(r.w, "the switch lost %d of %d packets from the guest, and %d of %d to it\n",
			r.Link.Sent.Lost, r.Link.Sent.Packets, r.Link.Received.Lost, r.Link.Received.Packets)
	}
}

func (r *report) ok() bool {
	return r.Counts[string(interop.Fail)] == 0 && r.Counts[string(interop.Stale)] == 0 && (r.Connections == nil || r.Connections.OK())
}

func (r *report) write(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
