package nslab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/launch"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios"
)

// LabMain is what a lab process does: it runs the scenario that it reads from
// its standard input, and reports. It returns an error only if there is nobody
// to report to.
func LabMain() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var job labJob
	if err := json.NewDecoder(os.Stdin).Decode(&job); err != nil {
		return fmt.Errorf("read the job: %w", err)
	}
	news := &newspaper{to: json.NewEncoder(os.NewFile(newsFD, "news"))}
	job.Options.Progress = news.progress
	s, err := scenarios.Parse(job.Name+".yaml", []byte(job.Scenario))
	if err != nil {
		return err
	}
	return news.result(play(ctx, s, job.Options))
}

// newspaper is how a lab process tells how it is getting on. Goroutines share
// it.
type newspaper struct {
	mu sync.Mutex
	to *json.Encoder
}

func (n *newspaper) progress(p lab.Progress) {
	n.mu.Lock()
	defer n.mu.Unlock()
	_ = n.to.Encode(labNews{Progress: &p}) // nobody may care; the result matters
}

func (n *newspaper) result(r *report.Result) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.to.Encode(labNews{Result: r})
}

// play runs a scenario in this process's namespaces.
func play(ctx context.Context, s *scenarios.Scenario, opts lab.Options) *report.Result {
	r := lab.NewResult(s, scenarios.NetNS, &opts)
	st, err := newStage(s, opts)
	if err == nil {
		defer st.close()
		var seen *lab.Observed
		if seen, err = st.run(ctx); err == nil {
			seen.Fill(r)
		}
	}
	if err != nil {
		lab.Break(r, err)
	}
	if opts.Dir != "" {
		r.Files = filesIn(opts.Dir, opts.Folder(s, scenarios.NetNS))
	}
	return r
}

// stage is a fabric that stands, with its switches and, once it runs, its ranks.
type stage struct {
	plan   *lab.Plan
	opts   lab.Options
	dir    string // for the scenario's files; empty if none are wanted
	fabric *netns.Fabric
	wires  *wires
	record *recorder
	group  *launch.Group

	// What conduct leaves, to be read when it has ended.
	steps  []lab.Done // that were carried out
	hung   string     // why the run was ended, if it was
	broken error      // what kept it from going on
}

// newStage builds the fabric of a scenario.
func newStage(s *scenarios.Scenario, opts lab.Options) (st *stage, err error) {
	st = &stage{opts: opts}
	if st.plan, err = lab.NewPlan(s, opts); err != nil {
		return nil, err
	}
	if opts.Dir != "" {
		st.dir = filepath.Join(opts.Dir, opts.Folder(s, scenarios.NetNS))
		if err := os.MkdirAll(st.dir, 0o777); err != nil {
			return nil, err
		}
	}
	defer func() {
		if err != nil {
			st.close()
		}
	}()
	if st.fabric, err = netns.Build(*st.plan.Topology, netns.Options{Splice: spliced(st.plan)}); err != nil {
		return nil, err
	}
	st.record = newRecorder(st.plan, opts.Progress)
	st.wires, err = newWires(st.plan, st.fabric)
	return st, err
}

func (st *stage) close() {
	if st.wires != nil {
		_ = st.wires.close() // run has reported it
	}
	if st.fabric != nil {
		_ = st.fabric.Close() // the kernel takes it all down with this process
	}
}

// joinWait is how long ranks have to be ready: with 64 hosts on two processors,
// most of it is waiting for one of them.
const joinWait = 60 * time.Second

// run starts the ranks, breaks what is to be broken, and watches until all have
// ended or time is up.
func (st *stage) run(ctx context.Context) (*lab.Observed, error) {
	running, stopped := context.WithCancel(ctx)
	defer stopped()
	specs, err := st.specs()
	if err != nil {
		return nil, err
	}
	st.group, err = launch.Start(ctx, specs, launch.Options{
		JoinWait: joinWait, LogDir: st.dir, OnEvent: st.record.event, Patience: 20 * time.Second,
	})
	if err != nil {
		return nil, err
	}
	var conducting sync.WaitGroup
	conducting.Go(func() { st.conduct(running) })
	outcomes, _ := st.group.Wait() // the outcomes say it all
	stopped()
	conducting.Wait()
	if err := errors.Join(st.broken, st.wires.close()); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("interrupted: %w", context.Cause(ctx))
	}
	return st.observe(outcomes)
}
