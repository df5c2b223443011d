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
)

// rank is a rank and its coroutine. Its number is the index of its host in the topology.
type rank struct {
	proc     *sim.Proc
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

// addRanks creates the ranks, one per host, with a coroutine each. Through the hub, their control
// channel, the ranks report marks (events on the timeline) and samples of their traffic.
func (r *run) addRanks() {
	size := r.plan.Scenario.RankCount()
	r.hub = NewHub(r.world, size)
	r.hub.OnMark = func(i int, at time.Duration, what string) {
		r.ranks[i].observed.Marks = append(r.ranks[i].observed.Marks, report.Mark{At: at, What: what})
	}
	r.hub.OnSample = func(i int, s workload.Sample) {
		r.ranks[i].observed.Samples = append(r.ranks[i].observed.Samples, s)
	}
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
		Rank: i, Size: len(r.ranks), Seed: r.plan.Seed, Proc: p, NICs: r.fabric.nics[i], Control: r.hub.Control(i),
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

// Hub connects the control channels of the ranks of a world.
type Hub struct {
	// OnMark and OnSample, if not nil, receive the marks and samples of the ranks, in
	// the order of the world's time.
	OnMark   func(rank int, at time.Duration, what string)
	OnSample func(rank int, s workload.Sample)

	*sim.Hub
}

// NewHub returns a hub for ranks 0 to size-1.
func NewHub(w *sim.World, size int) *Hub { return &Hub{Hub: sim.NewHub(w, size, workload.ErrGone)} }

// Control returns the control channel of a rank.
func (h *Hub) Control(rank int) workload.Control { return &control{h.Endpoint(rank), h} }

// control is the control channel of one rank.
type control struct {
	*sim.Endpoint
	h *Hub
}

// Mark implements workload.Control.
func (c *control) Mark(what string) {
	if c.h.OnMark != nil {
		c.h.OnMark(c.Rank(), c.Now(), what)
	}
}

// Sample implements workload.Control.
func (c *control) Sample(s workload.Sample) {
	if c.h.OnSample != nil {
		c.h.OnSample(c.Rank(), s)
	}
}
