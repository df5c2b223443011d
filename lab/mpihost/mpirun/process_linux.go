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

	"github.com/fabrictest/fabrictest/internal/interrupt"
	"github.com/fabrictest/fabrictest/internal/printable"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/lab/nslab"
	"github.com/fabrictest/fabrictest/launch"
)

// sharedFD is what the memory of its host is called in a rank: the first descriptor
// behind that of the launcher.
const sharedFD = 4

// Ranks that spin share the processors with those that are still starting: both take
// their time.
const (
	joinWait = time.Minute
	patience = time.Minute
)

// ProcessMain is what the process of a fabric does. It returns the code to exit with.
func ProcessMain() (code int, err error) {
	ctx, stop := signal.NotifyContext(context.Background(), interrupt.Signals()...)
	defer stop()
	var j onceJob
	if err := json.NewDecoder(os.NewFile(jobFD, "job")).Decode(&j); err != nil {
		return 0, fmt.Errorf("read the job: %w", err)
	}
	news := os.NewFile(newsFD, "news")
	defer news.Close()
	plan, err := j.plan()
	if err != nil {
		return 0, err
	}
	stage, err := nslab.OpenStage(plan)
	if err != nil {
		return 0, err
	}
	defer stage.Close() //nolint:errcheck // it goes with this process
	if err := stage.Begin(time.Now()); err != nil {
		return 0, err
	}
	specs, done, err := j.specs(stage)
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
			err = errors.Join(err, json.NewEncoder(news).Encode(mpihost.Report{Rank: i, Text: text}))
		}
	}
	if aborted != nil {
		fmt.Fprintf(os.Stderr, "fabrictest: %s\n", printable.Text(fmt.Sprint(aborted)))
		return aborted.ExitCode(), err
	}
	code = verdict(outcomes, os.Stderr)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		hung(outcomes, context.Cause(ctx), os.Stderr)
		code = 1
	}
	return code, err
}

// shownLines is how much is shown of what a rank was at: what it waits for, or the top
// of its program's stack.
const shownLines = 20

// hung says what ranks were at that were ended because they took too long.
func hung(outcomes []launch.Outcome, why error, w io.Writer) {
	fmt.Fprintf(w, "fabrictest: %v\n", why)
	for i := range outcomes {
		if o := &outcomes[i]; !o.State.OK() && o.StateDump != "" {
			lines := strings.SplitAfterN(o.StateDump, "\n", shownLines+1)
			text := printable.Text(strings.TrimRight(strings.Join(lines[:min(len(lines), shownLines)], ""), "\n"))
			fmt.Fprintf(w, "%s was at:\n  %s\n", place(o), strings.ReplaceAll(text, "\n", "\n  "))
		}
	}
}

// specs are the processes to start. done closes what only they need.
func (j *onceJob) specs(stage *nslab.Stage) (specs []launch.Spec, done func(), err error) {
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
		h, slot := stage.Plan.Topology.Hosts[i/j.PerHost], i%j.PerHost
		if slot == 0 {
			f, err := mpihost.NewShared(h.Name)
			if err != nil {
				return nil, done, err
			}
			shared = append(shared, f)
		}
		job := j.Job
		job.Rank = &mpihost.RankJob{Shared: sharedFD, Began: began}
		if j.Bind {
			job.Rank.CPU = cpus[i%len(cpus)] + 1
		}
		for k := range h.NICs {
			job.Rank.NICs = append(job.Rank.NICs, mpihost.NICJob{Name: h.NICs[k].Name, Addr: addressOf(&h.NICs[k], slot)})
		}
		text, err := json.Marshal(job)
		if err != nil {
			return nil, done, err
		}
		host := stage.Fabric.Host(h.Name)
		start := host.NS.Start
		if i == 0 {
			start = func(cmd *exec.Cmd) error {
				takeInput(cmd)
				return host.NS.Start(cmd)
			}
		}
		specs = append(specs, launch.Spec{
			Rank: i, Host: h.Name, Start: start, Job: text,
			Cmd: launch.Command{
				Path: j.Args[0], Args: j.Args[1:], Dir: j.Dir, Files: []*os.File{shared[i/j.PerHost]},
				Env: append(os.Environ(), nics.EnvVars(stage.Plan.Topology, h)...),
			},
		})
	}
	return specs, done, nil
}

// launch runs the ranks until all have ended; aborted says who ended them, nil if
// nobody did.
func (j *onceJob) launch(ctx context.Context, specs []launch.Spec) (all []launch.Outcome, aborted *mpihost.AbortError, err error) {
	var a aborts
	group, err := launch.Start(ctx, specs, launch.Options{
		JoinTimeout: joinWait, HangTimeout: patience, KeepGoing: j.KeepGoing, LogLimit: noLimit,
		OnEvent: func(e launch.Event) {
			switch e.Kind {
			case launch.Printed:
				j.passOn(&e)
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
	a.endIn(group)
	all, _ = group.Wait() // the outcomes say it all
	return all, a.first, nil
}

// aborts ends a group when a rank says so, which it may before the group is known.
type aborts struct {
	mu    sync.Mutex
	first *mpihost.AbortError
	group *launch.Group
}

func (a *aborts) add(why *mpihost.AbortError) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.first == nil {
		a.first = why
		if a.group != nil {
			a.group.Stop(why)
		}
	}
}

func (a *aborts) endIn(g *launch.Group) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.group = g
	if a.first != nil {
		g.Stop(a.first)
	}
}
