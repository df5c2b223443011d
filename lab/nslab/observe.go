package nslab

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fabrictest/fabrictest/emu/link/pcaplink"
	"github.com/fabrictest/fabrictest/internal/process"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/launch"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios"
	"github.com/fabrictest/fabrictest/scenarios/workload"
)

// observe combines the reports of the ranks, the exit states of their processes, and the counters
// of the links. othersShare is the share of CPU time that other processes used. The tier of the
// observation, where the scenario ran, is NetNS: network namespaces.
func (p *scenarioRun) observe(outcomes []launch.Outcome, othersShare float64) (*lab.Observation, error) {
	observed := &lab.Observation{Plan: p.Plan, Tier: scenarios.NetNS, Steps: p.steps, AbortReason: p.abortReason}
	var errs []error
	var stats []lab.SchedStat
	if u, ok := process.UsedCPU(); ok {
		stats = append(stats, lab.SchedStat{Process: "the lab process", Ran: u.Ran, Waited: u.Waited})
	}
	for i := range outcomes {
		o := &outcomes[i]
		var out rankOutcome
		if o.Report != nil {
			if err := json.Unmarshal(o.Report, &out); err != nil {
				out = rankOutcome{Error: fmt.Sprintf("cannot decode the rank's report: %v", err)}
			}
		}
		observed.Ranks = append(observed.Ranks, p.observedRank(o, &out))
		if u := out.Usage; u != nil {
			stats = append(stats, lab.SchedStat{Process: fmt.Sprintf("rank %d", o.Rank), Ran: u.Ran, Waited: u.Waited})
		}
		observed.Elapsed = max(observed.Elapsed, p.recorder.since(o.Ended))
		if why := cmp.Or(out.CaptureError, o.Stdout.Error, o.Stderr.Error); why != "" { // a file could not be written
			errs = append(errs, fmt.Errorf("rank %d on %s: %s", o.Rank, o.Host, why))
		}
		errs = append(errs, resourceError(o))
		if o.State != launch.Finished && p.dir != "" {
			// A killed rank leaves an incomplete packet, or has written no file.
			if err := pcaplink.Trim(captureFile(p.dir, o.Host)); !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	observed.SetScheduling(othersShare, stats)
	return observed, errors.Join(append(errs, p.readCounters(observed))...)
}

// observedRank combines the data about one rank: its process, its report and its samples.
func (p *scenarioRun) observedRank(o *launch.Outcome, out *rankOutcome) lab.Rank {
	record := &p.recorder.ranks[o.Rank]
	r := lab.Rank{
		Rank: o.Rank, Host: o.Host, State: lab.Finished, Samples: record.samples, Marks: record.marks,
		ExitCode: &o.ExitCode, Signal: o.Signal, Waiting: o.StateDump, Report: out.Report,
	}
	if !o.MaxRSSIsUpperBound { // an upper bound says little about the rank
		r.MemoryKiB = o.MaxRSS >> 10
	}
	switch {
	case o.State == launch.Killed:
		r.State = lab.Killed
	case out.Error != "":
		r.State, r.Err, r.Timeout = lab.Errored, errors.New(out.Error), out.Timeout
	case o.State == launch.Stopped || o.State == launch.Hung: // a stopped rank did not end in time
		r.State = lab.Hung
	case o.State != launch.Finished:
		r.State = lab.Exited
	}
	if r.Err == nil && o.Error != "" {
		r.Err = errors.New(exitReason(o))
	}
	return r
}

// exitReason returns why a process ended. If it exited by itself, the text includes the line of its
// stderr with the cause of a crash, or the last lines if there is none.
func exitReason(o *launch.Outcome) string {
	stderr := strings.TrimSpace(o.Stderr.Tail)
	if stderr == "" || o.State != launch.Exited {
		return o.Error
	}
	lines := strings.Split(stderr, "\n")
	// Goroutine stacks and registers follow the cause.
	for _, cause := range []*regexp.Regexp{crashLine, fatalSignal} {
		if i := slices.IndexFunc(lines, cause.MatchString); i >= 0 {
			return o.Error + ": " + lines[i]
		}
	}
	const maxLines = 3
	return o.Error + ": " + strings.Join(lines[max(0, len(lines)-maxLines):], "; ")
}

// fatalSignal matches the line in which a Go program names the signal that killed it.
var fatalSignal = regexp.MustCompile(`^SIG[A-Z0-9]+: `)

// filesIn lists the captures and logs in a scenario's folder, except empty ones. folder is relative
// to dir.
func filesIn(dir, folder string) (files []report.File) {
	entries, _ := os.ReadDir(filepath.Join(dir, folder))
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || info.Size() == 0 {
			continue
		}
		kind := "log"
		if strings.HasSuffix(strings.TrimSuffix(e.Name(), pcaplink.CompressedSuffix), captureSuffix) {
			kind = "capture"
		}
		files = append(files, report.File{Kind: kind, Path: path.Join(folder, e.Name()), Size: info.Size()})
	}
	return files
}

// crashLine matches the line with the cause of a crash of a Go program.
var crashLine = regexp.MustCompile(`(?m)^(fatal error|runtime(/cgo)?|panic): .*$`)

// Messages of the Go runtime when it cannot create threads or allocate memory.
var (
	noThreads = regexp.MustCompile(`pthread_create failed|failed to create new OS thread|newosproc`)
	noMemory  = regexp.MustCompile(`out of memory|cannot allocate memory|cannot allocate heap`)
)

const threadAdvice = "too few threads for all hosts: raise the limit ('ulimit -u', or pids.max of the container), or run fewer hosts at once"

// limitAdvice returns advice for a process that failed at a limit of threads or
// memory; empty for other failures.
func limitAdvice(output string) string {
	switch {
	case noThreads.MatchString(output):
		return threadAdvice
	case noMemory.MatchString(output):
		return "too little memory for all hosts: raise the limit ('ulimit -v', or memory.max of the container), or run fewer hosts at once"
	}
	return ""
}

// resourceError returns an error with advice if a rank crashed or exited for lack of threads or
// memory.
func resourceError(o *launch.Outcome) error {
	if o.State != launch.Crashed && o.State != launch.Exited || o.Signal == "SIGKILL" {
		return nil // the OOM killer is only one possible cause of SIGKILL
	}
	if advice := limitAdvice(o.Error); advice != "" {
		return fmt.Errorf("rank %d on %s: %s: %s", o.Rank, o.Host, o.Error, advice)
	}
	return nil
}

// startError adds advice to the error of a process that could not be started because of a limit on
// threads or processes (EAGAIN). It returns other errors unchanged.
func startError(err error) error {
	if errors.Is(err, syscall.EAGAIN) {
		return fmt.Errorf("%w: %s", err, threadAdvice)
	}
	return err
}

// describeOutput returns the end of an error message about a lab process: the cause of its crash,
// if the output has one, with advice, and then the whole output.
func describeOutput(output string) string {
	if output == "" {
		return ""
	}
	cause := strings.TrimSpace(crashLine.FindString(output))
	if advice := limitAdvice(cause); advice != "" {
		cause += ": " + advice
	}
	if cause != "" {
		cause = ": " + cause
	}
	return cause + "\n" + output
}

// recorder keeps the samples and marks of the ranks. It is safe for concurrent use.
type recorder struct {
	mu         sync.Mutex
	ranks      []record
	readyRanks int           // ranks that wait for the start command
	epoch      time.Time     // time 0 of the scenario; zero until all ranks are ready
	allReady   chan struct{} // closed when all ranks are ready
}

// record has the samples and marks of one rank.
type record struct {
	samples []workload.Sample
	marks   []report.Mark
}

// maxRecords bounds the marks, and the samples, of one rank.
const maxRecords = 100_000

// handleEvent records the marks (texts with a time) and samples (measurements) that the ranks send
// to the launcher, at most maxRecords of each. It closes allReady when every rank has sent
// readyMark.
func (r *recorder) handleEvent(e launch.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.Kind != launch.Marked && e.Kind != launch.Sampled {
		return // other events may belong to no rank
	}
	rank := &r.ranks[e.Rank]
	var s workload.Sample
	switch {
	case e.Kind == launch.Marked && e.Text == readyMark && r.epoch.IsZero(): // before time 0
		if r.readyRanks++; r.readyRanks == len(r.ranks) {
			close(r.allReady)
		}
	case e.Kind == launch.Marked && len(rank.marks) < maxRecords:
		rank.marks = append(rank.marks, report.Mark{At: r.since(e.At), What: e.Text})
	case e.Kind == launch.Sampled && len(rank.samples) < maxRecords && json.Unmarshal(e.Sample, &s) == nil:
		rank.samples = append(rank.samples, s)
	}
}

// since returns the scenario's time at t; 0 before the start.
func (r *recorder) since(t time.Time) time.Duration {
	if r.epoch.IsZero() {
		return 0
	}
	return t.Sub(r.epoch)
}

// now returns the current time of the scenario.
func (r *recorder) now() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.since(time.Now())
}
