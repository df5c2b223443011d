package nslab

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/emu/link/pcaplink"
	"github.com/fabrictest/fabrictest/internal/cputime"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/launch"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios"
)

// observe puts together what the ranks told, what became of their processes, and
// what the links counted.
func (p *performance) observe(outcomes []launch.Outcome, others float64) (*lab.Observed, error) {
	seen := &lab.Observed{Plan: p.Plan, Tier: scenarios.NetNS, Steps: p.steps, Hung: p.hung}
	var errs []error
	var waits []lab.Waits
	if u, ok := cputime.Self(); ok {
		waits = append(waits, lab.Waits{Process: "the lab process", Ran: u.Ran, Waited: u.Waited})
	}
	for i := range outcomes {
		o := &outcomes[i]
		var out rankOutcome
		if o.Report != nil {
			if err := json.Unmarshal(o.Report, &out); err != nil {
				out = rankOutcome{Error: fmt.Sprintf("its report is damaged: %v", err)}
			}
		}
		seen.Ranks = append(seen.Ranks, p.rankSeen(o, &out))
		if u := out.Usage; u != nil {
			waits = append(waits, lab.Waits{Process: fmt.Sprintf("rank %d", o.Rank), Ran: u.Ran, Waited: u.Waited})
		}
		seen.Elapsed = max(seen.Elapsed, p.record.since(o.Ended))
		errs = append(errs, unwritten(o, &out), starved(o))
		if o.State != launch.Finished && p.dir != "" {
			errs = append(errs, trimCapture(captureFile(p.dir, o.Host)))
		}
	}
	seen.Schedule(others, waits)
	return seen, errors.Join(append(errs, p.wires.observe(p.Fabric, seen))...)
}

// othersSince is the share of the processors that processes outside of the run used
// since a sample was taken.
func (p *performance) othersSince(before cputime.Sample) float64 {
	now, _ := cputime.Now()
	return cputime.OthersShare(before, now)
}

// unwritten is what of a rank's files could not be written: a run without them is
// not what was asked for, whatever the fabric did.
func unwritten(o *launch.Outcome, out *rankOutcome) error {
	if why := cmp.Or(out.Capture, o.Stdout.Error, o.Stderr.Error); why != "" {
		return fmt.Errorf("rank %d on %s: %s", o.Rank, o.Host, why)
	}
	return nil
}

// rankSeen is what was seen of one rank.
func (p *performance) rankSeen(o *launch.Outcome, out *rankOutcome) lab.Rank {
	told := &p.record.ranks[o.Rank]
	r := lab.Rank{
		Rank: o.Rank, Host: o.Host, State: lab.Finished, Samples: told.samples, Marks: told.marks,
		ExitCode: &o.ExitCode, Signal: o.Signal, Waiting: o.StateDump,
	}
	if !o.MaxRSSIsUpperBound { // a bound says little about the rank
		r.MemoryKiB = o.MaxRSS >> 10
	}
	r.Report = out.Report
	switch {
	case o.State == launch.Killed:
		r.State = lab.Killed
	case out.Error != "":
		r.State, r.Err, r.Timeout = lab.Errored, errors.New(out.Error), out.Timeout
	case o.State == launch.Stopped || o.State == launch.Hung:
		r.State = lab.Hung
	case o.State != launch.Finished:
		r.State = lab.Exited
	}
	if r.Err == nil && o.Error != "" {
		r.Err = errors.New(lastWords(o))
	}
	return r
}

// lastWords is why a process ended, with the end of what it wrote.
func lastWords(o *launch.Outcome) string {
	words := strings.TrimSpace(o.Stderr.Tail)
	if words == "" || o.State != launch.Exited {
		return o.Error
	}
	lines := strings.Split(words, "\n")
	// What follows are goroutines and registers.
	if i := slices.IndexFunc(lines, deathLine.MatchString); i >= 0 {
		return o.Error + ": " + lines[i]
	}
	if i := slices.IndexFunc(lines, fatalSignal.MatchString); i >= 0 {
		return o.Error + ": " + lines[i]
	}
	const enough = 3
	return o.Error + ": " + strings.Join(lines[max(0, len(lines)-enough):], "; ")
}

// fatalSignal is the line in which a Go program names a signal that ended it.
var fatalSignal = regexp.MustCompile(`^SIG[A-Z0-9]+: `)

// filesIn lists what a scenario left in its folder: captures and logs.
func filesIn(dir, folder string) (files []report.File) {
	entries, _ := os.ReadDir(filepath.Join(dir, folder))
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || info.Size() == 0 {
			continue
		}
		kind := "log"
		if strings.HasSuffix(strings.TrimSuffix(e.Name(), pcaplink.Packed), captureSuffix) {
			kind = "capture"
		}
		files = append(files, report.File{Kind: kind, Path: path.Join(folder, e.Name()), Size: info.Size()})
	}
	return files
}
