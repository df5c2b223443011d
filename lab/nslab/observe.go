package nslab

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/launch"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios"
)

// observe puts together what the ranks told, what became of their processes, and
// what the links counted.
func (p *performance) observe(outcomes []launch.Outcome) (*lab.Observed, error) {
	seen := &lab.Observed{Plan: p.Plan, Tier: scenarios.NetNS, Steps: p.steps, Hung: p.hung}
	for i := range outcomes {
		seen.Ranks = append(seen.Ranks, p.rankSeen(&outcomes[i]))
		seen.Elapsed = max(seen.Elapsed, p.record.since(outcomes[i].Ended))
	}
	return seen, p.wires.observe(p.Fabric, seen)
}

// rankSeen is what was seen of one rank.
func (p *performance) rankSeen(o *launch.Outcome) lab.Rank {
	told := &p.record.ranks[o.Rank]
	r := lab.Rank{
		Rank: o.Rank, Host: o.Host, State: lab.Finished, Samples: told.samples, Marks: told.marks,
		ExitCode: &o.ExitCode, Signal: o.Signal, Waiting: o.Waiting,
	}
	if !o.RSSBound { // a bound says little about the rank
		r.MemoryKiB = o.MaxRSS >> 10
	}
	var out rankOutcome
	if o.Report != nil {
		if err := json.Unmarshal(o.Report, &out); err != nil {
			r.State, r.Err = lab.Errored, fmt.Errorf("its report is damaged: %w", err)
			return r
		}
		r.Report = out.Report
	}
	switch {
	case o.State == launch.Killed:
		r.State = lab.Killed
	case out.Error != "":
		r.State, r.Err = lab.Errored, errors.New(out.Error)
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
		if strings.HasSuffix(e.Name(), ".pcapng") {
			kind = "capture"
		}
		files = append(files, report.File{Kind: kind, Path: path.Join(folder, e.Name()), Size: info.Size()})
	}
	return files
}
