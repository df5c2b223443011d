package nslab

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fabrictest/fabrictest/internal/process"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/launch"
	"github.com/fabrictest/fabrictest/netns/topology"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios"
)

// runScenario runs a scenario in the namespaces of this process, compresses its captures, and
// returns the result with a list of all files.
func runScenario(ctx context.Context, s *scenarios.Scenario, opts lab.Options) *report.Result {
	r := lab.NewResult(s, scenarios.NetNS, &opts)
	var truncated atomic.Bool
	observed, err := buildAndRun(ctx, s, opts, func() { truncated.Store(true) })
	if observed != nil {
		observed.FillResult(r)
	}
	if truncated.Load() {
		addDetail(r, fmt.Sprintf("%s is not complete: it has reached %d MiB", fabricCapture, MaxFabricCapture>>20))
	}
	if err != nil {
		lab.MarkBroken(r, err)
	}
	if opts.Dir != "" {
		folder := opts.Folder(s, scenarios.NetNS)
		if err := finishCaptures(filepath.Join(opts.Dir, folder), opts.Capture.Keeps(r.Verdict.Bad())); err != nil { // the files remain uncompressed
			addDetail(r, err.Error())
		}
		r.Files = filesIn(opts.Dir, folder)
	}
	return r
}

// addDetail appends a line to the details of a result.
func addDetail(r *report.Result, line string) {
	if r.Detail != "" {
		r.Detail += "\n"
	}
	r.Detail += line
}

// buildAndRun builds the fabric, runs the ranks on it, and returns what was observed, also of a run
// that was stopped. It calls onTruncated if the capture of the fabric reaches its limit.
func buildAndRun(ctx context.Context, s *scenarios.Scenario, opts lab.Options, onTruncated func()) (*lab.Observation, error) {
	if err := lab.Check(s, scenarios.NetNS, opts.Defects...); err != nil {
		return nil, err
	}
	plan, err := lab.NewPlan(s, opts)
	if err != nil {
		return nil, err
	}
	for _, h := range plan.Topology.Hosts {
		// Report invalid settings before any rank starts.
		if _, err := lab.NICs(s, h.Name, opts.Defects...); err != nil {
			return nil, err
		}
	}
	p := &scenarioRun{opts: opts}
	if opts.Dir != "" {
		p.dir = filepath.Join(opts.Dir, opts.Folder(s, scenarios.NetNS))
		if err := os.MkdirAll(p.dir, 0o777); err != nil {
			return nil, err
		}
	}
	// Cables in shared memory have counters only in the switch.
	testbed := TestbedOptions{Netem: opts.Netem, UserSpace: cabled(s)}
	if opts.Capture.Any() && p.dir != "" {
		testbed.Capture = CaptureOptions{File: filepath.Join(p.dir, fabricCapture), Comment: opts.Replay, OnTruncated: onTruncated}
	}
	if p.Testbed, err = Open(plan, testbed); err != nil {
		return nil, err
	}
	defer p.Close() //nolint:errcheck // the kernel removes the namespaces with this process
	p.recorder = &recorder{ranks: make([]record, s.RankCount()), allReady: make(chan struct{})}
	return p.run(ctx)
}

// fabricCapture is the capture file of the user-space switches in the scenario's folder.
const fabricCapture = "fabric.pcapng"

// scenarioRun is a running scenario on its testbed.
type scenarioRun struct {
	*Testbed
	opts     lab.Options
	dir      string // for the scenario's files; empty if none are written
	recorder *recorder
	group    *launch.Group

	// Results of runFaults.
	steps       []lab.ExecutedStep // executed
	abortReason string             // empty if the run was not stopped
	internalErr error              // an error outside of the fabric
}

const (
	// joinTimeout is how long ranks have to become ready; 64 hosts on two CPUs need most of it.
	joinTimeout = 60 * time.Second
	// hangTimeout is how long a rank's process may send no heartbeat.
	hangTimeout = 20 * time.Second
)

// run starts the ranks, executes the faults, and waits until all ranks have ended or the time limit
// is reached. It also measures the share of CPU time that other processes took.
func (p *scenarioRun) run(ctx context.Context) (*lab.Observation, error) {
	running, stop := context.WithCancel(ctx)
	defer stop()
	specs, err := p.rankSpecs()
	if err != nil {
		return nil, err
	}
	cpuBefore, _ := process.SampleCPU()
	p.group, err = launch.Start(ctx, specs, launch.Options{
		JoinTimeout: joinTimeout, HangTimeout: hangTimeout, LogDir: p.dir, OnEvent: p.recorder.handleEvent,
	})
	if err != nil {
		return nil, startError(err)
	}
	var background sync.WaitGroup
	background.Go(func() { p.runFaults(running) })
	background.Go(func() { p.reportStates(running) })
	outcomes, err := p.group.Wait()
	stop()
	background.Wait()
	cpuAfter, _ := process.SampleCPU()
	var rankErr *launch.RankError
	switch {
	case ctx.Err() != nil:
		p.abortReason = fmt.Sprintf("interrupted at %v of the scenario's time: %v", p.recorder.now().Round(time.Millisecond), context.Cause(ctx))
		p.internalErr = errors.New(p.abortReason)
	case errors.As(err, &rankErr) && p.abortReason == "":
		p.abortReason = "the run was ended when " + rankErr.Error()
	}
	internalErr := errors.Join(p.internalErr, p.Testbed.close())
	observed, err := p.observe(outcomes, process.OthersShare(cpuBefore, cpuAfter))
	return observed, errors.Join(internalErr, err)
}

// reportStates calls OnState with the states of all ranks for each state request.
func (p *scenarioRun) reportStates(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.opts.StateRequests:
		}
		all := []lab.RankState{}
		for rank, state := range p.group.Dump(ctx) {
			all = append(all, lab.RankState{Rank: rank, Host: p.Plan.Topology.Hosts[rank].Name, State: state})
		}
		slices.SortFunc(all, func(a, b lab.RankState) int { return cmp.Compare(a.Rank, b.Rank) })
		p.opts.OnState(all)
	}
}

// rankSpecs returns the processes to launch: rank i runs in the namespace of host i.
func (p *scenarioRun) rankSpecs() ([]launch.Spec, error) {
	text, err := p.Plan.Scenario.Marshal()
	if err != nil {
		return nil, err
	}
	specs := make([]launch.Spec, p.Plan.Scenario.RankCount())
	for i := range specs {
		host := &p.Plan.Topology.Hosts[i]
		job := rankJob{
			Name: p.Plan.Scenario.Name, Scenario: string(text), Seed: p.Plan.Seed, Host: host.Name,
			Defects:      p.opts.Defects,
			StallTimeout: stallTimeout, NoGSO: p.opts.Netem, // netem would drop a GSO packet as a whole
		}
		for _, n := range host.NICs {
			cable, _ := p.Plan.Topology.CableAt(topology.Port{Node: host.Name, NIC: n.Name})
			nic := rankNIC{Name: n.Name, Rail: n.Rail, Addr: n.Addr(p.Plan.Scenario.Fabric.IPv4), RateBps: cable.Link.RateBps}
			if p.cables != nil {
				nic.CableFD = launch.FirstFile + n.Rail
			}
			job.NICs = append(job.NICs, nic)
		}
		if p.opts.Capture.Any() && p.dir != "" {
			job.Capture = captureFile(p.dir, host.Name)
			job.Comment = p.opts.Replay
		}
		body, err := json.Marshal(job)
		if err != nil {
			return nil, err
		}
		specs[i] = launch.Spec{
			Rank: i, Host: host.Name, Job: body, Start: p.Start(host.Name),
			Cmd: launch.Command{Path: "/proc/self/exe", Args: []string{RankCommand}, Files: p.CableFiles()},
		}
	}
	return specs, nil
}

// captureFile returns the capture file of a host.
func captureFile(dir, host string) string { return filepath.Join(dir, host+captureSuffix) }

// stallTimeout is how long a program may make no progress. It is longer than the
// retries of a connection.
const stallTimeout = 30 * time.Second
