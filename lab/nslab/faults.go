package nslab

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/scenarios"
)

// conduct lets the ranks begin when all are ready, carries out the timed faults,
// and ends the run when its time is up.
func (st *stage) conduct(ctx context.Context) {
	if err := st.begin(ctx); err != nil {
		st.giveUp(ctx, err)
		return
	}
	for i := range st.plan.Steps {
		step := &st.plan.Steps[i]
		if !st.wait(ctx, step.At) {
			return
		}
		if err := st.do(ctx, step); err != nil {
			st.giveUp(ctx, fmt.Errorf("%s: %w", st.plan.What(step), err))
			return
		}
		st.steps = append(st.steps, lab.Done{Step: step, At: st.record.now()})
	}
	if st.wait(ctx, st.plan.Limit) {
		st.hung = fmt.Sprintf("the limit of %v is reached", st.plan.Limit)
		st.group.Stop(errors.New(st.hung))
	}
}

// begin waits until all ranks are ready, and sets time 0 a moment ahead of what
// they are told, so that no packet is sent before it.
func (st *stage) begin(ctx context.Context) error {
	select {
	case <-st.record.all:
	case <-ctx.Done():
		return ctx.Err()
	}
	now, order := time.Now(), orderStart(monotonic())
	st.record.begin(now)
	if err := st.wires.begin(now); err != nil {
		return err
	}
	errs := make(chan error, st.group.Size())
	for rank := range st.group.Size() {
		go func() { errs <- st.group.Order(ctx, rank, order) }()
	}
	var err error
	for range st.group.Size() {
		err = errors.Join(err, <-errs)
	}
	return err
}

// giveUp ends the run for a reason of ours. Ranks that have ended meanwhile, and
// the run with them, are no such reason.
func (st *stage) giveUp(ctx context.Context, err error) {
	if ctx.Err() == nil {
		st.broken = err
		st.group.Stop(err)
	}
}

// wait waits until a time of the scenario's.
func (st *stage) wait(ctx context.Context, at time.Duration) bool {
	timer := time.NewTimer(at - st.record.now())
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// do carries out one step.
func (st *stage) do(ctx context.Context, step *lab.Step) error {
	switch step.Do {
	case scenarios.Down:
		return st.eachPort(step, func(port string) error { return st.fabric.SetLink(port, step.Undo) })
	case scenarios.Partition:
		return st.wires.partition(step)
	case scenarios.SetImpair:
		return st.wires.set(step.Set)
	case scenarios.Kill:
		return st.eachRank(step, st.group.Kill)
	case scenarios.Freeze:
		if step.Undo {
			return st.eachRank(step, st.group.Thaw)
		}
		return st.eachRank(step, st.group.Freeze)
	case scenarios.QPError:
		return st.eachRank(step, func(rank int) error { return st.group.Order(ctx, rank, breakOrder) })
	}
	return fmt.Errorf("a fault %q in namespaces: %w", step.Do, errors.ErrUnsupported)
}

func (st *stage) eachPort(step *lab.Step, do func(port string) error) error {
	var errs []error
	for _, p := range step.Ports {
		errs = append(errs, do(st.plan.Ports[p].Name))
	}
	return errors.Join(errs...)
}

// eachRank does something to the ranks of a step's hosts: hosts beyond the last
// rank have none.
func (st *stage) eachRank(step *lab.Step, do func(rank int) error) error {
	var errs []error
	for _, h := range step.Hosts {
		if h < st.plan.Scenario.RankCount() {
			errs = append(errs, do(h))
		}
	}
	return errors.Join(errs...)
}
