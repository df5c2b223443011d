package nslab

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/launch"
	"github.com/fabrictest/fabrictest/scenarios"
)

// runFaults starts the ranks when all are ready, executes the timed faults, and stops the run
// at its time limit or on an error. It returns then, or when ctx ends.
func (p *scenarioRun) runFaults(ctx context.Context) {
	if err := p.begin(ctx); err != nil {
		p.abort(ctx, err)
		return
	}
	for i := range p.Plan.Steps {
		step := &p.Plan.Steps[i]
		if step.At >= p.Plan.Limit {
			break // the run ends first
		}
		if !p.waitUntil(ctx, step.At) {
			return
		}
		if err := p.execute(ctx, step); err != nil {
			p.abort(ctx, fmt.Errorf("%s: %w", p.Plan.DescribeStep(step), err))
			return
		}
		p.steps = append(p.steps, lab.ExecutedStep{Step: step, At: p.recorder.now()})
	}
	if p.waitUntil(ctx, p.Plan.Limit) {
		p.abortReason = fmt.Sprintf("the limit of %v is reached", p.Plan.Limit)
		p.group.Stop(errors.New(p.abortReason))
	}
}

// begin waits until all ranks are ready, sets time 0, and sends it to them in the start command, as
// a time of CLOCK_MONOTONIC, which all processes share. No packet is sent before time 0.
func (p *scenarioRun) begin(ctx context.Context) error {
	select {
	case <-p.recorder.allReady:
	case <-ctx.Done():
		return ctx.Err()
	}
	now, command := time.Now(), startCommand+strconv.FormatInt(int64(monotonic()), 10)
	p.recorder.mu.Lock()
	p.recorder.epoch = now
	p.recorder.mu.Unlock()
	if err := p.Testbed.begin(now); err != nil {
		return err
	}
	errs := make(chan error, p.group.Size())
	for rank := range p.group.Size() {
		go func() { errs <- p.group.SendCommand(ctx, rank, command) }()
	}
	var err error
	for range p.group.Size() {
		err = errors.Join(err, <-errs)
	}
	return err
}

// abort stops the run for an error of the lab itself, unless the run has ended.
func (p *scenarioRun) abort(ctx context.Context, err error) {
	if ctx.Err() == nil {
		p.internalErr = err
		p.group.Stop(err)
	}
}

// waitUntil waits until a time of the scenario; false if ctx ended first.
func (p *scenarioRun) waitUntil(ctx context.Context, at time.Duration) bool {
	timer := time.NewTimer(at - p.recorder.now())
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// execute executes one step: it applies a fault, or ends it if step.Undo is set.
func (p *scenarioRun) execute(ctx context.Context, step *lab.Step) error {
	switch step.Do {
	case scenarios.Down:
		errs := make([]error, 0, len(step.Ports))
		for _, port := range step.Ports {
			up := step.Undo
			errs = append(errs, p.setLink(port, up))
		}
		return errors.Join(errs...)
	case scenarios.Partition:
		p.Testbed.partition(step)
		return nil
	case scenarios.SetImpair:
		return p.setSpecs(step.Set)
	case scenarios.Kill:
		return p.eachRank(step, p.group.Kill)
	case scenarios.Freeze:
		if step.Undo {
			return p.eachRank(step, p.group.Thaw)
		}
		return p.eachRank(step, p.group.Freeze)
	case scenarios.QPError:
		return p.eachRank(step, func(rank int) error { return p.group.SendCommand(ctx, rank, breakCommand) })
	}
	return fmt.Errorf("a fault %q in namespaces: %w", step.Do, errors.ErrUnsupported)
}

// eachRank calls do for the ranks on the hosts of a step; a rank has the number of its host. It
// skips hosts without a rank, and ranks that have ended.
func (p *scenarioRun) eachRank(step *lab.Step, do func(rank int) error) error {
	var errs []error
	for _, h := range step.Hosts {
		if h < p.Plan.Scenario.RankCount() {
			if err := do(h); !errors.Is(err, launch.ErrEnded) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}
