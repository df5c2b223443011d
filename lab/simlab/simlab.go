package simlab

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/internal/units"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios"
	"github.com/fabrictest/fabrictest/scenarios/simcontrol"
	"github.com/fabrictest/fabrictest/scenarios/workload"
)

// maxEvents ends a run that polls for ever while hardly any time passes: about a
// minute on the wall, and some hundred times what a long scenario takes.
const maxEvents = 300_000_000

// starter makes the program of a rank; workload.New is one.
type starter func(workload.Config, *workload.Rank) (workload.Program, error)

// Run runs a scenario. It always returns a result: what keeps it from running the
// scenario to its end, a panic or the end of ctx included, is the reason of a
// broken one.
func Run(ctx context.Context, s *scenarios.Scenario, opts lab.Options) *report.Result {
	return runWith(ctx, s, opts, workload.New)
}

func runWith(ctx context.Context, s *scenarios.Scenario, opts lab.Options, start starter) (result *report.Result) {
	began := time.Now()
	result = lab.NewResult(s, scenarios.Sim, &opts)
	defer func() {
		if v := recover(); v != nil {
			lab.Break(result, fmt.Errorf("panic: %v\n%s", v, debug.Stack()))
		}
		result.Wall = time.Since(began)
	}()
	r := &run{ctx: ctx, opts: &opts, start: start}
	if err := r.build(s); err != nil {
		r.discard()
		lab.Break(result, err)
		return result
	}
	err := r.play()
	if cerr := r.finish(result); err == nil {
		err = cerr
	}
	r.seen.Fill(result)
	if err != nil {
		lab.Break(result, err)
	}
	return result
}

// run is a scenario under way.
type run struct {
	ctx     context.Context
	opts    *lab.Options
	start   starter
	plan    *lab.Plan
	world   *sim.World
	fabric  fabric
	hub     *simcontrol.Hub
	ranks   []*rank
	capture *capture
	seen    lab.Observed
	problem error // of ours, found while the world ran
}

// build makes everything that the scenario needs, at time 0.
func (r *run) build(s *scenarios.Scenario) (err error) {
	if !s.RunsOn(scenarios.Sim) {
		return s.Errorf("tiers", "the scenario is not meant for %s", scenarios.Sim)
	}
	if why := lab.Unfit(s, scenarios.Sim, r.opts.Quirks...); why != "" {
		return s.Errorf("nic.provider", "%s", why)
	}
	if r.plan, err = lab.NewPlan(s, *r.opts); err != nil {
		return err
	}
	r.seen = lab.Observed{Plan: r.plan, Tier: scenarios.Sim}
	r.world = sim.New(sim.Config{
		Seed: r.plan.Seed, MaxEvents: maxEvents, MaxTime: mono.Time(r.plan.Limit),
		Stop: func() error { return context.Cause(r.ctx) },
	})
	if r.capture, err = newCapture(s, r.opts); err != nil {
		return err
	}
	if err := r.fabric.build(r); err != nil {
		return err
	}
	r.addRanks()
	for i := range r.plan.Steps {
		step := &r.plan.Steps[i]
		r.world.AtFunc(mono.Time(step.At), func() { r.do(step) })
	}
	return nil
}

// play runs the world and finds out how it ended. An error is a fault of the
// harness; what the fabric did is in r.seen.
func (r *run) play() error {
	err := r.world.RunPrograms()
	var deadlock *sim.DeadlockError
	var limit *sim.LimitError
	switch {
	case err == nil:
	case errors.As(err, &deadlock):
		r.hung(fmt.Sprintf("deadlock at %s: nothing is left to happen", units.Duration(time.Duration(deadlock.Now))), deadlock.Waiting)
		err = nil
	case errors.As(err, &limit) && limit.Limit == "time":
		r.hung(fmt.Sprintf("the limit of %s is reached", units.Duration(r.plan.Limit)), limit.Waiting)
		err = nil
	case errors.As(err, &limit):
		r.hung(fmt.Sprintf("%d events have happened, and it is only %s", limit.Events, units.Duration(time.Duration(limit.Now))), limit.Waiting)
		err = nil
	case r.ctx.Err() != nil:
		when := fmt.Sprintf("interrupted at %s of the scenario's time", units.Duration(time.Duration(r.world.Now())))
		r.hung(when, nil)
		err = fmt.Errorf("%s: %w", when, err)
	}
	return errors.Join(err, r.problem)
}

// hung marks the ranks that had not ended.
func (r *run) hung(why string, waiting []sim.WaitingProgram) {
	r.seen.Hung = why
	parked := make(map[string]sim.WaitingProgram, len(waiting))
	for _, w := range waiting {
		parked[w.Program] = w
	}
	for _, k := range r.ranks {
		if k.seen.State != "" {
			continue
		}
		k.seen.State = lab.Hung
		k.seen.Waiting = k.status()
		if w, ok := parked[k.name()]; ok {
			k.seen.Waiting += fmt.Sprintf("\nwaits for %s since %s", w.Reason, units.Duration(time.Duration(w.Since)))
		}
	}
}

// finish reads all counters, closes what is open and completes the files.
func (r *run) finish(result *report.Result) error {
	r.seen.Elapsed = time.Duration(r.world.Now())
	if r.seen.Hung == "" {
		r.seen.Elapsed = 0
	}
	for _, k := range r.ranks {
		r.seen.Elapsed = max(r.seen.Elapsed, k.ended)
		k.seen.Counters = r.fabric.counters(k.host)
		r.seen.Ranks = append(r.seen.Ranks, k.seen)
	}
	r.fabric.observe(&r.seen)
	closed := r.fabric.close()
	file, err := r.capture.close()
	if file != nil {
		result.Files = append(result.Files, *file)
	}
	r.world.Close()
	return errors.Join(closed, err)
}

// discard lets go of what a failed build has made.
func (r *run) discard() {
	_ = r.fabric.close()
	_, _ = r.capture.close()
	if r.world != nil {
		r.world.Close()
	}
}
