// Package peers has the result of comparing the multi-rank runtime with other runtimes and programs,
// and writes it as a table and as a page. The command perf/peers measures it.
package peers

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/perf"
	"github.com/fabrictest/fabrictest/report"
)

// Run is the result of a comparison.
type Run struct {
	Tool        string         `json:"tool"`    // version of fabrictest
	Command     string         `json:"command"` // the command that repeats the run
	Started     time.Time      `json:"started"`
	Machine     report.Machine `json:"machine"`
	CPU         string         `json:"cpu,omitempty"` // model of the processor
	Load        float64        `json:"load"`          // load average at the start
	Rounds      int            `json:"rounds"`
	Peers       []Peer         `json:"peers"`
	Skipped     []Skipped      `json:"skipped,omitempty"`
	Comparisons []Comparison   `json:"comparisons"`
	Summaries   []Summary      `json:"summaries,omitempty"` // of collective operations
}

// Peer is a runtime or program that was measured.
type Peer struct {
	Name    string `json:"name"`
	Version string `json:"version"` // with the name of the software
}

// Skipped is a peer that is not installed.
type Skipped struct {
	Name    string `json:"name"`
	Reason  string `json:"reason"`
	Install string `json:"install"` // a command
}

// Comparison is the result of a measurement beside one peer.
type Comparison struct {
	Name        string  `json:"name"`   // metric, ranks and size
	Metric      string  `json:"metric"` // "half round trip", "allgather", …
	Ranks       int     `json:"ranks"`
	Bytes       int     `json:"bytes"`
	Peer        string  `json:"peer"`
	Unit        string  `json:"unit"`
	LessWins    bool    `json:"less_wins"` // a lower figure is better
	Theirs      float64 `json:"theirs"`    // medians
	Ours        float64 `json:"ours"`
	NoICRC      float64 `json:"ours_no_icrc"`
	Ratio       float64 `json:"ratio"` // ours to the peer's
	RatioNoICRC float64 `json:"ratio_no_icrc"`
	Noise       float64 `json:"noise"`
	// Want, Target and the verdicts are empty for peers without targets.
	Want          float64 `json:"want_ratio,omitempty"` // with ICRC
	Target        string  `json:"target,omitempty"`
	Verdict       string  `json:"verdict,omitempty"`
	VerdictNoICRC string  `json:"verdict_no_icrc,omitempty"`
}

// Summary counts the points of collective operations at which our runtime is faster than a peer.
type Summary struct {
	Peer        string  `json:"peer"`
	WithICRC    bool    `json:"with_icrc"`
	Points      int     `json:"points"`
	Faster      int     `json:"faster"`
	Slowest     float64 `json:"slowest_ratio"`
	SlowestName string  `json:"slowest"`
	Target      string  `json:"target,omitempty"`  // empty for peers without targets
	Verdict     string  `json:"verdict,omitempty"` // likewise
}

// Share returns the share of points at which our runtime is faster.
func (s *Summary) Share() float64 { return float64(s.Faster) / float64(s.Points) }

// icrc says in words whether the ICRC was computed.
func (s *Summary) icrc() string {
	if s.WithICRC {
		return "with ICRC"
	}
	return "without ICRC"
}

// String returns the summary as a line.
func (s *Summary) String() string {
	text := fmt.Sprintf("%s: faster than %s at %d of %d points (%.0f %%), slowest %.2f × (%s)", s.icrc(), s.Peer, s.Faster, s.Points, 100*s.Share(), s.Slowest, s.SlowestName)
	if s.Verdict != "" {
		text += fmt.Sprintf("; targets %s: %s", s.Target, s.Verdict)
	}
	return text
}

// Missed reports whether a target was missed.
func (r *Run) Missed() bool {
	return slices.ContainsFunc(r.Comparisons, func(c Comparison) bool { return c.Verdict == perf.Missed || c.VerdictNoICRC == perf.Missed }) ||
		slices.ContainsFunc(r.Summaries, func(s Summary) bool { return s.Verdict == perf.Missed })
}

// WriteTable writes the result as a table with a row for each measurement and peer, and the versions
// and missing peers below it.
func (r *Run) WriteTable(w io.Writer) error {
	var b, rows strings.Builder
	fmt.Fprintln(&rows, "\tpeer\ttheirs\tours\tno ICRC\tunit\tratio\tno ICRC\tnoise\ttarget\tverdict\tno ICRC\t")
	for _, c := range r.Comparisons {
		fmt.Fprintf(&rows, "%s\t%s\t%.2f\t%.2f\t%.2f\t%s\t%.2f\t%.2f\t%.0f %%\t%s\t%s\t%s\t\n",
			c.Name, c.Peer, c.Theirs, c.Ours, c.NoICRC, c.Unit, c.Ratio, c.RatioNoICRC, 100*c.Noise, c.Target, c.Verdict, c.VerdictNoICRC)
	}
	tab := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = io.WriteString(tab, cli.Printable(rows.String())) // written to memory
	tab.Flush()
	fmt.Fprintln(&b)
	for _, p := range r.Peers {
		fmt.Fprintln(&b, p.Version)
	}
	for _, s := range r.Skipped {
		fmt.Fprintf(&b, "%s is skipped: %s; install it with: %s\n", s.Name, s.Reason, s.Install)
	}
	for i := range r.Summaries {
		fmt.Fprintln(&b, &r.Summaries[i])
	}
	fmt.Fprintf(&b, "%d rounds, medians; the load was %.1f when they began\n", r.Rounds, r.Load)
	_, err := io.WriteString(w, cli.Printable(b.String()))
	return err
}
