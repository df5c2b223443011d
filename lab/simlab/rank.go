package simlab

import (
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios/workload"
	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// rank is a rank and its coroutine. Its number is the index of its host in the topology.
type rank struct {
	proc     *sim.Proc
	tasks    []*sim.Proc      // of the program
	program  workload.Program // nil until it has started
	ended    time.Duration
	observed lab.Rank
}

func (rk *rank) name() string {
	return fmt.Sprintf("rank %d on %s", rk.observed.Rank, rk.observed.Host)
}

// hasEnded reports whether the rank has ended or counts as hung.
func (rk *rank) hasEnded() bool { return rk.observed.State != "" }

// status describes what the rank's program is doing.
func (rk *rank) status() string {
	if rk.program == nil {
		return "not started"
	}
	return rk.program.Status()
}

// addRanks creates the ranks, one per host, with a coroutine each. r.hub connects their control
// channels, by which they report marks (events on the timeline) and samples of their traffic.
func (r *run) addRanks() {
	size := r.plan.Scenario.RankCount()
	r.hub = sim.NewHub(r.world, size, workload.ErrGone)
	for i := range size {
		rk := &rank{observed: lab.Rank{Rank: i, Host: r.plan.Topology.Hosts[i].Name}}
		r.ranks = append(r.ranks, rk)
		rk.proc = r.world.Go(rk.name(), func(p *sim.Proc) error {
			r.runRank(rk, p)
			return nil // the error is in rk.observed; other ranks continue
		})
	}
}

// runRank runs the program of a rank, and records how it ended. A program that stopped because
// nothing happened for too long (StallError) counts as hung.
func (r *run) runRank(rk *rank, p *sim.Proc) {
	i := rk.observed.Rank
	defer r.hub.End(i)
	program, err := r.newProgram(r.plan.Scenario.Workload, &workload.Rank{
		Rank: i, Size: len(r.ranks), Seed: r.plan.Seed, Proc: p, NICs: r.fabric.nics[i], Control: &control{r.hub.Endpoint(i), &rk.observed},
		Go:           func(what string, task func(verbs.Proc)) { r.startTask(rk, what, task) },
		StallTimeout: r.plan.Limit / 2, // the rank reports a stall before the limit ends the run
	})
	if err == nil {
		rk.program = program
		rk.observed.Report, err = program.Run()
	}
	rk.observed.State, rk.observed.Err, rk.ended = lab.Finished, err, p.Now()
	var stall *traffic.StallError
	switch {
	case errors.As(err, &stall):
		rk.observed.State, rk.observed.Waiting = lab.Hung, rk.status()
	case err != nil:
		rk.observed.State = lab.Errored
	}
}

// startTask runs a task of a rank's program as a coroutine.
func (r *run) startTask(rk *rank, what string, task func(verbs.Proc)) {
	rk.tasks = append(rk.tasks, r.world.Go(rk.name()+": "+what, func(p *sim.Proc) error {
		task(p)
		return nil
	}))
}

// control is the control channel of a rank.
type control struct {
	*sim.Endpoint
	observed *lab.Rank
}

// Mark implements workload.Control.
func (c *control) Mark(what string) {
	c.observed.Marks = append(c.observed.Marks, report.Mark{At: c.Now(), What: what})
}

// Sample implements workload.Control.
func (c *control) Sample(s workload.Sample) { c.observed.Samples = append(c.observed.Samples, s) }
