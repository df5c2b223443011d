package simlab

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios"
	"github.com/fabrictest/fabrictest/scenarios/workload"
)

// maxEvents ends a run that polls forever while virtual time hardly advances. It is reached after
// about a minute, and is some hundred times the events of a long scenario.
const maxEvents = 300_000_000

// newProgram creates the program of a rank, as workload.New does.
type newProgram func(workload.Config, *workload.Rank) (workload.Program, error)

// Run runs a scenario and returns its result, which is never nil. An internal
// error, a panic or the end of ctx gives the verdict Broken.
func Run(ctx context.Context, s *scenarios.Scenario, opts lab.Options) *report.Result {
	return runWith(ctx, s, opts, workload.New)
}

// runWith runs a scenario in virtual time; create creates the program of each rank. The result is
// never nil: an internal error, a panic or the end of ctx gives the verdict Broken.
func runWith(ctx context.Context, s *scenarios.Scenario, opts lab.Options, create newProgram) (result *report.Result) {
	began := time.Now()
	result = lab.NewResult(s, scenarios.Sim, &opts)
	defer func() {
		if v := recover(); v != nil {
			lab.MarkBroken(result, fmt.Errorf("panic: %v\n%s", v, debug.Stack()))
		}
		result.Wall = time.Since(began)
	}()
	r := &run{ctx: ctx, opts: &opts, newProgram: create}
	if err := r.build(s); err != nil {
		_ = r.fabric.close() // the error of build matters more
		_, _ = r.capture.close(false)
		if r.world != nil {
			r.world.Close()
		}
		lab.MarkBroken(result, err)
		return result
	}
	err := r.runWorld()
	if finishErr := r.finish(); err == nil {
		err = finishErr
	}
	r.observed.FillResult(result)
	if err != nil {
		lab.MarkBroken(result, err)
	}
	file, captureErr := r.capture.close(opts.Capture.Keeps(result.Verdict.Bad()))
	if err == nil && captureErr != nil {
		lab.MarkBroken(result, captureErr)
	}
	if file != nil {
		result.Files = append(result.Files, *file)
	}
	return result
}

// run is a running scenario.
type run struct {
	ctx         context.Context
	opts        *lab.Options
	newProgram  newProgram
	plan        *lab.Plan
	world       *sim.World
	fabric      fabric
	hub         *sim.Hub
	ranks       []*rank
	capture     *capture
	observed    lab.Observation
	internalErr error // outside of the fabric
}

// build creates the world, the fabric, the ranks and the timed steps of the scenario.
func (r *run) build(s *scenarios.Scenario) (err error) {
	if !s.RunsOn(scenarios.Sim) {
		return s.Errorf("tiers", "the scenario does not list the tier %s", scenarios.Sim)
	}
	if err := lab.Check(s, scenarios.Sim, r.opts.Defects...); err != nil {
		return err
	}
	if r.plan, err = lab.NewPlan(s, *r.opts); err != nil {
		return err
	}
	r.observed = lab.Observation{Plan: r.plan, Tier: scenarios.Sim}
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
		r.world.AtFunc(mono.Time(step.At), func() { r.execute(step) })
	}
	return nil
}

// runWorld runs the simulation to its end. A deadlock or a reached limit is recorded in the
// observation; an error that it returns is internal, or the end of the context.
func (r *run) runWorld() error {
	err := r.world.RunPrograms()
	var deadlock *sim.DeadlockError
	var limit *sim.LimitError
	switch {
	case err == nil:
	case errors.As(err, &deadlock):
		r.abort(fmt.Sprintf("deadlock at %s: no event is pending", cli.Duration(time.Duration(deadlock.Now))), deadlock.Waiting)
		err = nil
	case errors.As(err, &limit) && limit.Limit == "time":
		r.abort(fmt.Sprintf("the limit of %s is reached", cli.Duration(r.plan.Limit)), limit.Waiting)
		err = nil
	case errors.As(err, &limit):
		r.abort(fmt.Sprintf("the limit of %d events is reached at %s", limit.Events, cli.Duration(time.Duration(limit.Now))), limit.Waiting)
		err = nil
	case r.ctx.Err() != nil:
		when := fmt.Sprintf("interrupted at %s of the scenario's time", cli.Duration(time.Duration(r.world.Now())))
		r.abort(when, nil) // it is not known what programs wait for
		err = fmt.Errorf("%s: %w", when, err)
	}
	return errors.Join(err, r.internalErr)
}

// abort records why the simulation ended early, and sets the state of the ranks
// that have not ended to Hung. waiting lists what each blocked program waits for.
func (r *run) abort(why string, waiting []sim.WaitingProgram) {
	r.observed.AbortReason = why
	blocked := make(map[string]sim.WaitingProgram, len(waiting))
	for _, w := range waiting {
		blocked[w.Program] = w
	}
	for _, rk := range r.ranks {
		if rk.hasEnded() {
			continue
		}
		rk.observed.State = lab.Hung
		rk.observed.Waiting = rk.status()
		if w, ok := blocked[rk.name()]; ok {
			rk.observed.Waiting += fmt.Sprintf("\nwaits for %s since %s", w.Reason, cli.Duration(time.Duration(w.Since)))
		}
	}
}

// finish fills in the observation, and closes the devices and the world. The elapsed time ends with
// the last rank, or with the simulation if that was aborted.
func (r *run) finish() error {
	if r.observed.AbortReason != "" {
		r.observed.Elapsed = time.Duration(r.world.Now())
	}
	for _, rk := range r.ranks {
		r.observed.Elapsed = max(r.observed.Elapsed, rk.ended)
		rk.observed.Counters = workload.SumCounters(r.fabric.nics[rk.observed.Rank])
		r.observed.Ranks = append(r.observed.Ranks, rk.observed)
	}
	r.fabric.readCounters(&r.observed)
	err := r.fabric.close()
	r.world.Close()
	return err
}

// execute executes a step of the plan now: it applies or undoes a fault.
func (r *run) execute(step *lab.Step) {
	r.observed.Steps = append(r.observed.Steps, lab.ExecutedStep{Step: step, At: time.Duration(r.world.Now())})
	switch step.Do {
	case scenarios.Down:
		for _, i := range step.Ports {
			if step.Undo {
				r.fabric.simPorts[i].SetUp()
			} else {
				r.fabric.simPorts[i].SetDown()
			}
		}
	case scenarios.Partition:
		r.fabric.partition(step)
	case scenarios.SetImpair:
		for _, set := range step.Set {
			r.addError(r.fabric.setSpecs(set))
		}
	case scenarios.Kill:
		r.eachRank(step, r.kill)
	case scenarios.Freeze:
		if step.Undo {
			r.eachRank(step, r.thaw)
		} else {
			r.eachRank(step, r.freeze)
		}
	case scenarios.QPError:
		r.eachRank(step, r.breakQPs)
	}
}

// addError records an internal error, which makes the result broken.
func (r *run) addError(err error) {
	if err != nil {
		r.internalErr = errors.Join(r.internalErr, err)
	}
}

// eachRank calls f for each rank on the hosts of a step. Rank i is on host i; later hosts have
// none.
func (r *run) eachRank(step *lab.Step, f func(*rank)) {
	for _, host := range step.Hosts {
		if host < len(r.ranks) {
			f(r.ranks[host])
		}
	}
}

// kill ends a rank and its NICs at once, as SIGKILL would. Other ranks learn of it
// from the control channel. A rank that has ended is not affected.
func (r *run) kill(rk *rank) {
	if rk.hasEnded() {
		return
	}
	rk.observed.State, rk.ended = lab.Killed, time.Duration(r.world.Now())
	rk.observed.Waiting = rk.status()
	for _, p := range append([]*sim.Proc{rk.proc}, rk.tasks...) {
		r.addError(p.Kill())
	}
	for _, nic := range r.fabric.nics[rk.observed.Rank] {
		r.addError(nic.Device.Close())
	}
}

// freeze pauses a rank's program, and its ports send and receive nothing, as if its process were
// stopped. Unlike in a stopped process, the timers of the NIC continue, so that a freeze longer
// than its retries breaks connections.
func (r *run) freeze(rk *rank) {
	if !rk.hasEnded() {
		rk.proc.Pause()
	}
	for _, p := range r.fabric.ports[rk.observed.Rank] {
		p.Freeze()
	}
}

// thaw resumes the ports and the process of a frozen host.
func (r *run) thaw(rk *rank) {
	for _, p := range r.fabric.ports[rk.observed.Rank] {
		p.Thaw()
	}
	if !rk.hasEnded() {
		rk.proc.Resume()
	}
}

// breakQPs moves a rank's queue pairs to the error state, in a separate coroutine
// because verb calls take virtual time.
func (r *run) breakQPs(rk *rank) {
	if rk.hasEnded() || rk.program == nil {
		return
	}
	breaker, ok := rk.program.(workload.Breaker)
	if !ok {
		r.addError(fmt.Errorf("%s: the workload %s does not support qp-error", rk.name(), r.plan.Scenario.Workload.Kind))
		return
	}
	r.world.Go("qp-error of "+rk.name(), func(*sim.Proc) error {
		if err := breaker.Break(); err != nil && !rk.hasEnded() {
			r.addError(fmt.Errorf("qp-error of %s: %w", rk.name(), err))
		}
		return nil
	})
}
