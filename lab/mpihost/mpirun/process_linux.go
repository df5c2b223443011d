package mpirun

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/lab/daemon"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/lab/nslab"
	"github.com/fabrictest/fabrictest/launch"
	"github.com/fabrictest/fabrictest/scenarios"
)

// Timeouts of ranks, which are slow to start while others spin.
const (
	joinTimeout = time.Minute
	hangTimeout = time.Minute
)

// ProcessMain is the main function of the process that InNamespaces starts: it builds the fabric of
// network namespaces, runs the ranks and writes their reports to reportsFD. It returns the exit
// code of the rank that aborted the job, 1 if the time limit stopped the ranks, else exitStatus.
func ProcessMain() (code int, err error) {
	ctx, stop := signal.NotifyContext(context.Background(), launch.StopSignals()...)
	defer stop()
	var j fabricJob
	if err := daemon.ReadJob(&j); err != nil {
		return 0, err
	}
	reports := os.NewFile(reportsFD, "reports")
	defer reports.Close()
	return j.run(ctx, reports)
}

// run builds the fabric, runs the ranks and writes their reports. It returns the exit code of the
// rank that aborted the job, 1 if the time limit stopped the ranks, else exitStatus.
func (j *fabricJob) run(ctx context.Context, reports io.Writer) (code int, err error) {
	plan, err := j.plan()
	if err != nil {
		return 0, err
	}
	testbed, err := nslab.Open(plan, nslab.TestbedOptions{})
	if err != nil {
		return 0, err
	}
	defer testbed.Close() //nolint:errcheck // removed when this process exits
	if err := testbed.Begin(time.Now()); err != nil {
		return 0, err
	}
	return j.runOn(ctx, testbedHosts(testbed), reports)
}

// testbedHosts returns the hosts of a fabric in network namespaces.
func testbedHosts(testbed *nslab.Testbed) (all []rankHost) {
	cables := testbed.CableFiles()
	for i := range testbed.Plan.Topology.Hosts {
		h := testbed.Plan.Topology.Hosts[i]
		all = append(all, rankHost{
			name: h.Name, start: testbed.Start(h.Name), files: cables, env: nics.EnvVars(testbed.Plan.Topology, h),
			nics: func(slot int) (jobs []mpihost.NICJob) {
				for k := range h.NICs {
					nic := mpihost.NICJob{Name: h.NICs[k].Name, Addr: rankAddr(&h.NICs[k], slot)}
					if len(cables) > 0 {
						nic.CableFD = cablesFD + h.NICs[k].Rail
					}
					jobs = append(jobs, nic)
				}
				return jobs
			},
		})
	}
	return all
}

// runOn runs the ranks on hosts and writes their reports, for run.
func (j *fabricJob) runOn(ctx context.Context, hosts []rankHost, reports io.Writer) (code int, err error) {
	for i := range hosts { // in blocks
		h := &hosts[i]
		h.first = i * j.PerHost
		h.ranks = max(min(j.PerHost, j.Ranks-h.first), 0)
	}
	specs, closeShared, err := j.specs(hosts)
	defer closeShared()
	if err != nil {
		return 0, err
	}
	return j.runGroup(ctx, reports, func(ctx context.Context, o launch.Options) (func() []launch.Outcome, error) {
		group, err := launch.Start(ctx, specs, o)
		if err != nil {
			return nil, err
		}
		return func() []launch.Outcome {
			outcomes, _ := group.Wait() // the outcomes have the errors
			return outcomes
		}, nil
	})
}

// startGroup starts ranks, and returns the function that waits for them.
type startGroup func(context.Context, launch.Options) (wait func() []launch.Outcome, err error)

// runGroup runs the ranks that start starts, and writes their reports. It returns the exit code as run
// does.
func (j *fabricJob) runGroup(ctx context.Context, reports io.Writer, start startGroup) (code int, err error) {
	if j.Limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, j.Limit, fmt.Errorf("the limit of %v is reached", j.Limit))
		defer cancel()
	}
	outcomes, aborted, err := j.runRanks(ctx, start)
	if err != nil {
		return 0, err
	}
	for i := range outcomes {
		if text := outcomes[i].Report; text != nil {
			err = errors.Join(err, json.NewEncoder(reports).Encode(mpihost.Report{Rank: i, Text: text}))
		}
	}
	if aborted != nil {
		fmt.Fprintf(os.Stderr, "fabrictest: %s\n", cli.Printable(fmt.Sprint(aborted)))
		return aborted.ExitCode(), err
	}
	code = exitStatus(outcomes, os.Stderr)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		printStates(outcomes, context.Cause(ctx), os.Stderr)
		code = 1
	}
	return code, err
}

// maxStateLines limits the lines that are printed of the state of a rank.
const maxStateLines = 20

// printStates prints why the launcher ended the job, and the first maxStateLines lines of the state
// dump of each rank that did not succeed.
func printStates(outcomes []launch.Outcome, reason error, w io.Writer) {
	fmt.Fprintf(w, "fabrictest: %v\n", reason)
	for i := range outcomes {
		if o := &outcomes[i]; !o.State.OK() && o.StateDump != "" {
			lines := strings.SplitAfterN(o.StateDump, "\n", maxStateLines+1)
			text := cli.Printable(strings.TrimRight(strings.Join(lines[:min(len(lines), maxStateLines)], ""), "\n"))
			fmt.Fprintf(w, "the state of %s was:\n  %s\n", rankName(o), strings.ReplaceAll(text, "\n", "\n  "))
		}
	}
}

// groupOptions are the options of ranks, but for OnEvent.
func (j *fabricJob) groupOptions() launch.Options {
	return launch.Options{JoinTimeout: joinTimeout, HangTimeout: hangTimeout, KeepGoing: j.KeepGoing, LogLimit: noLimit}
}

// runRanks runs the ranks until all have ended. aborted is the first abort that a rank reports to
// the launcher (in a Marked event), which stops all ranks; nil if no rank aborted.
func (j *fabricJob) runRanks(ctx context.Context, start startGroup) (all []launch.Outcome, aborted *mpihost.AbortError, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	o := j.groupOptions()
	o.OnEvent = func(e launch.Event) {
		switch e.Kind {
		case launch.Printed:
			j.forwardOutput(&e)
		case launch.Marked:
			if abort := mpihost.ParseAbort(e.Text); abort != nil {
				cancel(abort) // stops the group; the first abort is the cause
			}
		}
	}
	wait, err := start(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	all = wait()
	aborted, _ = errors.AsType[*mpihost.AbortError](context.Cause(ctx))
	return all, aborted, nil
}

// reportsFD is the descriptor for reports in the fabric process.
const reportsFD = 4

// fabricJob is the input of the fabric process.
type fabricJob struct {
	Config
	Dir string `json:"dir"`
}

// InNamespaces runs the program with one process for each rank, in a fabric of network
// namespaces. A child process creates the fabric, and the kernel removes it with that process. With
// cables in shared memory, there are neither namespaces nor a child.
func InNamespaces(ctx context.Context, c Config) (result Result, err error) {
	if err := c.setDefaults(); err != nil {
		return Result{}, err
	}
	j := fabricJob{Config: c}
	if j.Dir, err = os.Getwd(); err != nil {
		return Result{}, err
	}
	if c.Cable == scenarios.SharedMemory {
		return j.runHere(ctx, j.run)
	}
	reports, childReports, err := os.Pipe()
	if err != nil {
		return Result{}, err
	}
	defer reports.Close()
	var readErr error
	readDone := make(chan struct{})
	go func() {
		defer close(readDone)
		result.Reports, _, readErr = readReports(reports, c.Ranks)
	}()
	code, err := daemon.RunOnce(ctx, ProcessCommand, j, childReports) // closes childReports
	<-readDone
	switch {
	case ctx.Err() != nil:
		return Result{}, fmt.Errorf("interrupted: %w", context.Cause(ctx))
	case code != 0: // the child printed the reason
		result.Code = code
		return result, nil
	}
	return result, errors.Join(err, readErr)
}

// runHere calls run, which runs the ranks from this process, and reads the reports that it writes.
// Cables in shared memory and devices of the kernel need no namespaces.
func (j *fabricJob) runHere(ctx context.Context, run func(context.Context, io.Writer) (int, error)) (result Result, err error) {
	var reports bytes.Buffer
	if result.Code, err = run(ctx, &reports); err == nil && ctx.Err() != nil {
		err = fmt.Errorf("interrupted: %w", context.Cause(ctx))
	}
	if err != nil || result.Code != 0 {
		return result, err
	}
	result.Reports, _, err = readReports(&reports, j.Ranks)
	return result, err
}
