package nslab

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/launch"
	"github.com/fabrictest/fabrictest/scenarios"
)

// conduct lets the ranks begin when all are ready, carries out the timed faults,
// and ends the run when its time is up.
func (p *performance) conduct(ctx context.Context) {
	if err := p.begin(ctx); err != nil {
		p.giveUp(ctx, err)
		return
	}
	for i := range p.Plan.Steps {
		step := &p.Plan.Steps[i]
		if step.At >= p.Plan.Limit {
			break // time is up before it comes to that
		}
		if !p.wait(ctx, step.At) {
			return
		}
		if err := p.do(ctx, step); err != nil {
			p.giveUp(ctx, fmt.Errorf("%s: %w", p.Plan.What(step), err))
			return
		}
		p.steps = append(p.steps, lab.Done{Step: step, At: p.record.now()})
	}
	if p.wait(ctx, p.Plan.Limit) {
		p.hung = fmt.Sprintf("the limit of %v is reached", p.Plan.Limit)
		p.group.Stop(errors.New(p.hung))
	}
}

// begin waits until all ranks are ready, and sets time 0 a moment ahead of what
// they are told, so that no packet is sent before it.
func (p *performance) begin(ctx context.Context) error {
	select {
	case <-p.record.all:
	case <-ctx.Done():
		return ctx.Err()
	}
	now, order := time.Now(), orderStart(monotonic())
	p.record.begin(now)
	if err := p.wires.begin(now); err != nil {
		return err
	}
	errs := make(chan error, p.group.Size())
	for rank := range p.group.Size() {
		go func() { errs <- p.group.SendCommand(ctx, rank, order) }()
	}
	var err error
	for range p.group.Size() {
		err = errors.Join(err, <-errs)
	}
	return err
}

// giveUp ends the run for a reason of ours. Ranks that have ended meanwhile, and
// the run with them, are no such reason.
func (p *performance) giveUp(ctx context.Context, err error) {
	if ctx.Err() == nil {
		p.broken = err
		p.group.Stop(err)
	}
}

// wait waits until a time of the scenario's.
func (p *performance) wait(ctx context.Context, at time.Duration) bool {
	timer := time.NewTimer(at - p.record.now())
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// do carries out one step.
func (p *performance) do(ctx context.Context, step *lab.Step) error {
	switch step.Do {
	case scenarios.Down:
		return p.eachPort(step, func(port int) error { return p.wires.setLink(p.Fabric, port, step.Undo) })
	case scenarios.Partition:
		return p.wires.partition(step)
	case scenarios.SetImpair:
		return p.wires.set(step.Set)
	case scenarios.Kill:
		return p.eachRank(step, p.group.Kill)
	case scenarios.Freeze:
		if step.Undo {
			return p.eachRank(step, p.group.Thaw)
		}
		return p.eachRank(step, p.group.Freeze)
	case scenarios.QPError:
		return p.eachRank(step, func(rank int) error { return p.group.SendCommand(ctx, rank, breakOrder) })
	}
	return fmt.Errorf("a fault %q in namespaces: %w", step.Do, errors.ErrUnsupported)
}

func (p *performance) eachPort(step *lab.Step, do func(port int) error) error {
	errs := make([]error, 0, len(step.Ports))
	for _, k := range step.Ports {
		errs = append(errs, do(k))
	}
	return errors.Join(errs...)
}

// eachRank does something to the ranks of a step's hosts: hosts beyond the last
// rank have none. To a rank that has ended nothing can be done any more, and
// nothing needs to be, as in simulation.
func (p *performance) eachRank(step *lab.Step, do func(rank int) error) error {
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
