package mpirun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"time"

	"github.com/fabrictest/fabrictest/internal/textfmt"
	"github.com/fabrictest/fabrictest/lab/daemon"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/lab/nslab"
	"github.com/fabrictest/fabrictest/launch"
)

// sharedFD is the descriptor of the shared memory in a rank: the first after the
// launcher's.
const sharedFD = 4

// Timeouts of ranks, which are slow to start while others spin.
const (
	joinTimeout = time.Minute
	hangTimeout = time.Minute
)

// ProcessMain is the main function of the fabric process. It returns the exit code.
func ProcessMain() (code int, err error) {
	ctx, stop := signal.NotifyContext(context.Background(), launch.StopSignals()...)
	defer stop()
	var j fabricJob
	if err := daemon.ReadJob(&j); err != nil {
		return 0, err
	}
	reports := os.NewFile(reportsFD, "reports")
	defer reports.Close()
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
	specs, done, err := j.specs(testbed)
	defer done()
	if err != nil {
		return 0, err
	}
	if j.Limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, j.Limit, fmt.Errorf("the limit of %v is reached", j.Limit))
		defer cancel()
	}
	outcomes, aborted, err := j.launch(ctx, specs)
	if err != nil {
		return 0, err
	}
	for i := range outcomes {
		if text := outcomes[i].Report; text != nil {
			err = errors.Join(err, json.NewEncoder(reports).Encode(mpihost.Report{Rank: i, Text: text}))
		}
	}
	if aborted != nil {
		fmt.Fprintf(os.Stderr, "fabrictest: %s\n", textfmt.Printable(fmt.Sprint(aborted)))
		return aborted.ExitCode(), err
	}
	code = exitStatus(outcomes, os.Stderr)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		printStates(outcomes, context.Cause(ctx), os.Stderr)
		code = 1
	}
	return code, err
}

// maxStateLines bounds the state of a rank that is printed.
const maxStateLines = 20

// printStates prints the states of ranks that were stopped at the time limit.
func printStates(outcomes []launch.Outcome, why error, w io.Writer) {
	fmt.Fprintf(w, "fabrictest: %v\n", why)
	for i := range outcomes {
		if o := &outcomes[i]; !o.State.OK() && o.StateDump != "" {
			lines := strings.SplitAfterN(o.StateDump, "\n", maxStateLines+1)
			text := textfmt.Printable(strings.TrimRight(strings.Join(lines[:min(len(lines), maxStateLines)], ""), "\n"))
			fmt.Fprintf(w, "%s was at:\n  %s\n", rankName(o), strings.ReplaceAll(text, "\n", "\n  "))
		}
	}
}

// specs returns the processes to start. done closes the shared memory files.
func (j *fabricJob) specs(testbed *nslab.Testbed) (specs []launch.Spec, done func(), err error) {
	var shared []*os.File // by host
	done = func() {
		for _, f := range shared {
			f.Close()
		}
	}
	var cpus []int
	if j.Bind {
		if cpus, err = mpihost.CPUs(); err != nil {
			return nil, done, err
		}
	}
	began := time.Now()
	for i := range j.Ranks {
		h, slot := testbed.Plan.Topology.Hosts[i/j.PerHost], i%j.PerHost
		if slot == 0 {
			f, err := mpihost.NewSharedMemory(h.Name)
			if err != nil {
				return nil, done, err
			}
			shared = append(shared, f)
		}
		job := j.Job
		job.Rank = &mpihost.RankJob{SharedFD: sharedFD, StartTime: began}
		if j.Bind {
			job.Rank.CPU = cpus[i%len(cpus)] + 1
		}
		for k := range h.NICs {
			job.Rank.NICs = append(job.Rank.NICs, mpihost.NICJob{Name: h.NICs[k].Name, Addr: rankAddr(&h.NICs[k], slot)})
		}
		text, err := json.Marshal(job)
		if err != nil {
			return nil, done, err
		}
		host := testbed.Fabric.Host(h.Name)
		start := host.NS.Start
		if i == 0 {
			start = func(cmd *exec.Cmd) error {
				passStdin(cmd)
				return host.NS.Start(cmd)
			}
		}
		specs = append(specs, launch.Spec{
			Rank: i, Host: h.Name, Start: start, Job: text,
			Cmd: launch.Command{
				Path: j.Args[0], Args: j.Args[1:], Dir: j.Dir, Files: []*os.File{shared[i/j.PerHost]},
				Env: append(os.Environ(), nics.EnvVars(testbed.Plan.Topology, h)...),
			},
		})
	}
	return specs, done, nil
}

// launch runs the ranks until all have ended. aborted is set if a rank aborted.
func (j *fabricJob) launch(ctx context.Context, specs []launch.Spec) (all []launch.Outcome, aborted *mpihost.AbortError, err error) {
	var a abortHandler
	group, err := launch.Start(ctx, specs, launch.Options{
		JoinTimeout: joinTimeout, HangTimeout: hangTimeout, KeepGoing: j.KeepGoing, LogLimit: noLimit,
		OnEvent: func(e launch.Event) {
			switch e.Kind {
			case launch.Printed:
				j.forwardOutput(&e)
			case launch.Marked:
				if why := mpihost.ParseAbort(e.Text); why != nil {
					a.add(why)
				}
			}
		},
	})
	if err != nil {
		return nil, nil, err
	}
	a.setGroup(group)
	all, _ = group.Wait() // the outcomes have the errors
	return all, a.first, nil
}

// abortHandler stops the group when a rank aborts, which may be before setGroup.
type abortHandler struct {
	mu    sync.Mutex
	first *mpihost.AbortError
	group *launch.Group
}

func (a *abortHandler) add(why *mpihost.AbortError) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.first == nil {
		a.first = why
		if a.group != nil {
			a.group.Stop(why)
		}
	}
}

func (a *abortHandler) setGroup(g *launch.Group) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.group = g
	if a.first != nil {
		g.Stop(a.first)
	}
}
