package nslab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fabrictest/fabrictest/internal/cputime"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/launch"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios"
)

// play runs a scenario in this process's namespaces.
func play(ctx context.Context, s *scenarios.Scenario, opts lab.Options) *report.Result {
	r := lab.NewResult(s, scenarios.NetNS, &opts)
	var cut atomic.Bool
	seen, err := perform(ctx, s, opts, func() { cut.Store(true) })
	if seen != nil {
		seen.Fill(r)
	}
	if cut.Load() {
		r.Detail = strings.TrimPrefix(fmt.Sprintf("%s\n%s is not complete: it has reached %d MiB", r.Detail, fabricCapture, MaxFabricCapture>>20), "\n")
	}
	if err != nil {
		lab.Break(r, err)
	}
	if opts.Dir != "" {
		folder := opts.Folder(s, scenarios.NetNS)
		if err := packCaptures(filepath.Join(opts.Dir, folder)); err != nil { // they stay as they are
			r.Detail = strings.TrimPrefix(r.Detail+"\n"+err.Error(), "\n")
		}
		r.Files = filesIn(opts.Dir, folder)
	}
	return r
}

// perform builds the fabric, lets the ranks run on it, and tells what was seen,
// also of a run that was not brought to its end. It calls onCut if the capture of
// the fabric is not complete.
func perform(ctx context.Context, s *scenarios.Scenario, opts lab.Options, onCut func()) (*lab.Observed, error) {
	if why := lab.Unfit(s, scenarios.NetNS, opts.Quirks...); why != "" {
		return nil, s.Errorf("nic.provider", "%s", why)
	}
	plan, err := lab.NewPlan(s, opts)
	if err != nil {
		return nil, err
	}
	for _, h := range plan.Topology.Hosts {
		// The ranks would find out as well, one by one.
		if _, err := lab.NICs(s, h.Name, opts.Quirks...); err != nil {
			return nil, err
		}
	}
	p := &performance{opts: opts, onCut: onCut}
	if opts.Dir != "" {
		p.dir = filepath.Join(opts.Dir, opts.Folder(s, scenarios.NetNS))
		if err := os.MkdirAll(p.dir, 0o777); err != nil {
			return nil, err
		}
	}
	if p.Stage, err = Open(plan, p.stageOptions()); err != nil {
		return nil, err
	}
	defer p.Close() //nolint:errcheck // the kernel takes it all down with this process
	p.record = newRecorder(plan, opts.Progress)
	return p.run(ctx)
}

// fabricCapture is the file of what passed through user space, in the folder of
// the scenario. No host is called that.
const fabricCapture = "fabric.pcapng"

func (p *performance) stageOptions() StageOptions {
	opts := StageOptions{Netem: p.opts.Netem}
	if p.opts.Capture && p.dir != "" {
		opts.Capture = CaptureOptions{
			File: filepath.Join(p.dir, fabricCapture), Comment: p.opts.Replay, OnCut: p.onCut,
		}
	}
	return opts
}

// performance is a scenario under way on its stage.
type performance struct {
	*Stage
	opts   lab.Options
	onCut  func()
	dir    string // for the scenario's files; empty if none are wanted
	record *recorder
	group  *launch.Group

	// What conduct leaves, to be read when it has ended.
	steps  []lab.Done // that were carried out
	hung   string     // why the run was ended, if it was
	broken error      // what kept it from going on
}

const (
	// joinWait is how long ranks have to be ready: with 64 hosts on two processors,
	// most of it is waiting for one of them.
	joinWait = 60 * time.Second
	// silence is how long a rank's process may give no sign of life.
	silence = 20 * time.Second
)

// run starts the ranks, breaks what is to be broken, and watches until all have
// ended or time is up.
func (p *performance) run(ctx context.Context) (*lab.Observed, error) {
	running, stopped := context.WithCancel(ctx)
	defer stopped()
	specs, err := p.specs()
	if err != nil {
		return nil, err
	}
	before, _ := cputime.Now()
	p.group, err = launch.Start(ctx, specs, launch.Options{
		JoinTimeout: joinWait, HangTimeout: silence, LogDir: p.dir, OnEvent: p.record.event,
	})
	if err != nil {
		return nil, unstarted(err)
	}
	var conducting sync.WaitGroup
	conducting.Go(func() { p.conduct(running) })
	conducting.Go(func() { p.tellState(running) })
	outcomes, err := p.group.Wait()
	stopped()
	conducting.Wait()
	others := p.othersSince(before)
	var culprit *launch.RankError
	switch {
	case ctx.Err() != nil:
		p.hung = fmt.Sprintf("interrupted at %v of the scenario's time: %v", p.record.now().Round(time.Millisecond), context.Cause(ctx))
		p.broken = errors.New(p.hung)
	case errors.As(err, &culprit) && p.hung == "":
		p.hung = "the run was ended when " + culprit.Error()
	}
	broken := errors.Join(p.broken, p.still())
	seen, err := p.observe(outcomes, others)
	return seen, errors.Join(broken, err)
}

// tellState says what each rank is at, whenever it is asked.
func (p *performance) tellState(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.opts.Ask:
		}
		all := []lab.RankState{}
		for rank, state := range p.group.Dump(ctx) {
			all = append(all, lab.RankState{Rank: rank, Host: p.Plan.Topology.Hosts[rank].Name, State: state})
		}
		slices.SortFunc(all, func(a, b lab.RankState) int { return cmp.Compare(a.Rank, b.Rank) })
		p.opts.State(all)
	}
}
