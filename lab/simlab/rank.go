package simlab

import (
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios/simcontrol"
	"github.com/fabrictest/fabrictest/scenarios/workload"
)

// rank is a program on a host.
type rank struct {
	host    int // index in the topology
	proc    *sim.Proc
	program workload.Program // nil until it has begun
	ended   time.Duration
	seen    lab.Rank
}

func (k *rank) name() string { return fmt.Sprintf("rank %d on %s", k.seen.Rank, k.seen.Host) }

func (k *rank) status() string {
	if k.program == nil {
		return "it has not begun"
	}
	return k.program.Status()
}

// addRanks adds a coroutine for every rank.
func (r *run) addRanks() {
	size := r.plan.Scenario.RankCount()
	r.hub = simcontrol.New(r.world, size)
	r.hub.OnMark = func(i int, at time.Duration, what string) {
		r.ranks[i].seen.Marks = append(r.ranks[i].seen.Marks, report.Mark{At: at, What: what})
	}
	r.hub.OnSample = func(i int, s workload.Sample) {
		r.ranks[i].seen.Samples = append(r.ranks[i].seen.Samples, s)
		r.progress()
	}
	for i := range size {
		k := &rank{host: i}
		k.seen.Rank, k.seen.Host = i, r.plan.Topology.Hosts[i].Name
		r.ranks = append(r.ranks, k)
		k.proc = r.world.Go(k.name(), func(p *sim.Proc) error {
			r.runRank(k, p)
			return nil // what became of it is seen; the others go on
		})
	}
}

// runRank is what a rank's coroutine does.
func (r *run) runRank(k *rank, p *sim.Proc) {
	i := k.seen.Rank
	defer r.hub.End(i)
	program, err := r.start(r.plan.Scenario.Workload, &workload.Rank{
		Rank: i, Size: len(r.ranks), Seed: r.plan.Seed, Proc: p, NICs: r.fabric.nics(k.host), Control: r.hub.Control(i),
		StallTimeout: r.plan.Limit / 2,
	})
	if err == nil {
		k.program = program
		k.seen.Report, err = program.Run()
	}
	k.seen.State, k.seen.Err, k.ended = lab.Finished, err, p.Now()
	var stuck *workload.StallError
	switch {
	case errors.As(err, &stuck):
		k.seen.State, k.seen.Waiting = lab.Hung, k.status()
	case err != nil:
		k.seen.State = lab.Errored
	}
	r.progress()
}

// progress tells whoever wants to know how far the run has come.
func (r *run) progress() {
	if r.opts.Progress == nil {
		return
	}
	p := lab.Progress{At: time.Duration(r.world.Now()), Of: len(r.ranks)}
	for _, k := range r.ranks {
		if n := len(k.seen.Samples); n > 0 {
			p.Messages += k.seen.Samples[n-1].Messages
			p.Bytes += k.seen.Samples[n-1].Bytes
		}
		if k.seen.State != "" {
			p.Ranks++
		}
	}
	r.opts.Progress(p)
}
