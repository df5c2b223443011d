package lab

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios"
	"github.com/fabrictest/fabrictest/scenarios/workload"
	"github.com/fabrictest/fabrictest/verbs"
)

// Observation is the data that a tier collects during a run.
type Observation struct {
	Plan *Plan
	Tier scenarios.Tier
	// Elapsed is the duration of the run, in virtual time on the sim tier.
	Elapsed time.Duration
	Ranks   []Rank
	// Links are the counters of both directions of every cable.
	Links []report.Link
	// Steps are the executed steps of the plan, with the actual times.
	Steps []ExecutedStep
	// Events counts the occurrences of each event of the scenario, over all directions.
	Events []uint64
	// EventErrors are events that could not be executed.
	EventErrors []string
	// AbortReason is why the run was stopped before its programs ended: a deadlock,
	// or a limit. Empty if it was not.
	AbortReason string
	// Scheduling is the CPU time that the run got; nil in virtual time.
	Scheduling *report.Scheduling
}

// Rank is the data about one rank.
type Rank struct {
	Rank int
	Host string
	// State is one of the constants below.
	State string
	// Err is the error of the program. Timeout is true if it waited too long, or
	// for a rank that had ended.
	Err     error
	Timeout bool
	// Report has the final counts of the program; nil if it wrote none.
	Report  *workload.Report
	Samples []workload.Sample
	Marks   []report.Mark
	// Counters are those of the rank's NICs, if the tier reads them; nil means
	// those of Report.
	Counters []verbs.Counter
	// MemoryKiB is the maximum resident set size; 0 if it was not measured.
	MemoryKiB int64
	ExitCode  *int
	Signal    string
	// Waiting is the state of the program when the run was stopped.
	Waiting string
}

// The final states of a rank.
const (
	Finished = "finished"
	Errored  = "failed" // its program returned an error
	Killed   = "killed" // by a fault of the scenario
	Exited   = "exited" // its process ended without a result
	Hung     = "hung"   // it was running when the run was stopped
)

// ExecutedStep is a step and the time at which it was executed.
type ExecutedStep struct {
	*Step
	At time.Duration
}

// counters returns the counters of the rank's NICs: those that the tier (simulation or namespaces)
// has read, else those that the rank's program has reported.
func (r *Rank) counters() []verbs.Counter {
	if r.Counters == nil && r.Report != nil {
		return r.Report.Counters
	}
	return r.Counters
}

// retransmits returns the number of packets that the rank's NICs retransmitted.
func (o *Observation) retransmits(r *Rank) (sum uint64) {
	for _, c := range r.counters() {
		if c.Name == o.Plan.Provider.RetransmitCounter {
			sum += c.Value
		}
	}
	return sum
}

// CountEvents adds the occurrences of the events of one direction of a port to Events. fired[i] is
// how often event i of m occurred.
func (o *Observation) CountEvents(m *Impairments, fired []uint64) {
	o.allocEvents()
	for i, n := range fired {
		o.Events[m.EventIndexes[i]] += n
	}
}

// allocEvents makes Events, with a counter for each event of the scenario.
func (o *Observation) allocEvents() {
	if o.Events == nil {
		o.Events = make([]uint64, len(o.Plan.Scenario.Events))
	}
}

// NewResult returns the result of a run that has not started.
func NewResult(s *scenarios.Scenario, tier scenarios.Tier, opts *Options) *report.Result {
	return &report.Result{
		Name: s.Name, Title: s.Title, Description: s.Description, Tags: s.Tags, Tier: string(tier), Seed: opts.SeedFor(s),
		Provider: cmp.Or(s.NIC.Provider, nics.Default),
		Defects:  opts.Defects, Netem: opts.Netem, Replay: opts.Replay,
	}
}

// MarkBroken sets the verdict Broken, for a run that failed for a reason outside of the
// fabric. The first line of the error is the reason, the rest goes to the details.
func MarkBroken(r *report.Result, err error) {
	line, rest, _ := strings.Cut(err.Error(), "\n")
	r.Verdict, r.Reason = report.Broken, line
	if rest != "" {
		r.Detail = strings.TrimPrefix(r.Detail+"\n"+rest, "\n")
	}
}

// FillResult writes the observation, its checks and the verdict to r. The verdict of a failure is
// Starved, not Failed, if a lack of CPU time may explain all failed checks.
func (o *Observation) FillResult(r *report.Result) {
	r.Elapsed, r.Fabric, r.Links, r.Faults = o.Elapsed, o.Plan.Topology, o.Links, o.faults()
	for i := range o.Ranks {
		rank := o.Ranks[i].toReport()
		rank.Resent = o.retransmits(&o.Ranks[i])
		r.Ranks = append(r.Ranks, rank)
	}
	r.Checks = Judge(o)
	r.Verdict = report.Passed
	for _, c := range r.Checks {
		if !c.OK {
			r.Verdict = report.Failed
			r.Reason = checkReason(&c)
			break
		}
	}
	r.Scheduling = o.Scheduling
	if r.Verdict == report.Failed {
		r.Detail = o.unfinishedRanks()
		onlyTiming := !slices.ContainsFunc(r.Checks, func(c report.Check) bool { return !c.OK && !c.Timing })
		if onlyTiming && o.isStarved() {
			r.Verdict, r.Reason = report.Starved, fmt.Sprintf("the machine is too busy: %v; then %s", o.Scheduling, r.Reason)
		}
	}
}

// maxReason bounds the reason of a result, in bytes. The check has the whole text.
const maxReason = 160

// checkReason describes a failed check in one line of about maxReason bytes. It leaves out the
// expected value, and truncates the text, if it is too long.
func checkReason(c *report.Check) string {
	if text := fmt.Sprintf("%s: want %s, got %s", c.Name, c.Want, c.Got); len(text) <= maxReason {
		return text
	}
	text := c.Name + ": " + c.Got
	if len(text) <= maxReason {
		return text
	}
	text = strings.ToValidUTF8(text[:maxReason], "")
	// Cut at a word, but keep the name and its colon.
	return text[:max(strings.LastIndexByte(text, ' '), len(c.Name)+1)] + " …"
}

// unfinishedRanks describes the ranks that neither finished nor were killed by a fault.
func (o *Observation) unfinishedRanks() string {
	var b strings.Builder
	for i := range o.Ranks {
		r := &o.Ranks[i]
		if r.State == Finished || r.State == Killed {
			continue
		}
		fmt.Fprintf(&b, "%s %s", r.name(), r.State)
		if r.Err != nil {
			fmt.Fprintf(&b, ": %v", r.Err)
		}
		b.WriteByte('\n')
		for line := range strings.Lines(r.Waiting) {
			fmt.Fprintf(&b, "  %s\n", strings.TrimRight(line, "\n"))
		}
	}
	return strings.TrimRight(b.String(), "\n")
}

// toReport returns the rank's entry in the result. If its program wrote no Report, the messages and
// bytes are those of the last sample.
func (r *Rank) toReport() report.Rank {
	out := report.Rank{
		Rank: r.Rank, Host: r.Host, State: r.State, ExitCode: r.ExitCode, Signal: r.Signal,
		MemoryKiB: r.MemoryKiB, Marks: r.Marks, Waiting: r.Waiting,
		Counters: nonZeroCounters(r.counters()),
	}
	if r.Err != nil {
		out.Error = r.Err.Error()
	}
	for _, s := range r.Samples {
		out.Samples = append(out.Samples, report.Sample{At: s.At, Messages: s.Messages, Bytes: s.Bytes, Resent: s.Retransmits, Errors: s.Errors})
	}
	if rep := r.Report; rep != nil {
		out.Elapsed, out.Failures, out.Reconn = rep.Elapsed, rep.FailureCount, rep.Reconnects
		for _, v := range rep.Violations {
			out.Violations = append(out.Violations, v.What)
		}
		for _, f := range rep.Flows {
			out.Messages += uint64(f.Arrived)
			out.Bytes += uint64(f.Bytes)
		}
		if l := rep.Latency; l != nil && l.Count > 0 {
			out.Latency = &report.Latency{Count: l.Count, Min: l.Min, P50: l.P50, P99: l.P99, Max: l.Max, Mean: l.Sum / time.Duration(l.Count)}
		}
	} else if n := len(r.Samples); n > 0 {
		out.Messages, out.Bytes = r.Samples[n-1].Messages, r.Samples[n-1].Bytes
	}
	return out
}

// nonZeroCounters returns the counters that are not 0, by name; nil if there are none.
func nonZeroCounters(all []verbs.Counter) map[string]uint64 {
	out := make(map[string]uint64)
	for _, c := range all {
		if c.Value > 0 {
			out[c.Name] += c.Value
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// Options are the options of one run of one scenario.
type Options struct {
	// Seed is the seed of all random choices; 0 means the scenario's seed.
	Seed uint64
	// Dir is an existing directory for the files of the run, which go into its
	// subdirectory Folder. Empty means that no files are written.
	Dir string
	// Capture is whether the packets of the hosts are kept, in compressed pcapng files: always, or
	// if the scenario does not pass. They are never truncated: Wireshark reports a RoCE packet with
	// a truncated payload as malformed.
	Capture cli.Captures
	// Defects are defects for every NIC, in addition to those of the scenario.
	Defects []string
	// Replay is the command that repeats the run. It is written to the files and the result.
	Replay string
	// Netem uses the kernel's netem for random impairments in namespaces, instead
	// of the user-space switch. It is faster, but not repeatable with the same
	// seed. An impairment that netem lacks is an error.
	Netem bool
	// Each receive from StateRequests makes a run in namespaces call OnState with
	// the current state of all ranks.
	StateRequests <-chan os.Signal        `json:"-"`
	OnState       func(state []RankState) `json:"-"`
}

// RankState is the state of a rank that runs, as text of its program.
type RankState struct {
	Rank  int    `json:"rank"`
	Host  string `json:"host"`
	State string `json:"state"`
}

// defaultSeed is the seed if neither the options nor the scenario have one.
const defaultSeed = 1

// SeedFor returns the seed of a run of s.
func (o *Options) SeedFor(s *scenarios.Scenario) uint64 {
	switch {
	case o.Seed != 0:
		return o.Seed
	case s.Seed != 0:
		return s.Seed
	}
	return defaultSeed
}

// Folder returns the subdirectory of Dir for the files of a scenario on a tier.
func (o *Options) Folder(s *scenarios.Scenario, tier scenarios.Tier) string {
	return fmt.Sprintf("%s-%s", s.Name, tier)
}
