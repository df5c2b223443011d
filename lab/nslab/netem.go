package nslab

import (
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/scenarios"
)

// netemCan says what of a plan is beyond netem.
func netemCan(plan *lab.Plan) error {
	cannot := func(key, what string) error {
		return plan.Scenario.Errorf(key, "the kernel's netem cannot %s: leave it to the user-space switch", what)
	}
	var errs []error
	if len(plan.Scenario.Events) > 0 {
		errs = append(errs, cannot("events", "do something to one exact packet"))
	}
	for i := range plan.Steps {
		if s := &plan.Steps[i]; s.Do == scenarios.Partition {
			errs = append(errs, cannot(fmt.Sprintf("faults[%d]", s.Fault), "keep hosts apart"))
		}
		for _, set := range plan.Steps[i].Set {
			if _, err := netemSpec(set.Specs, set.Way); err != nil {
				errs = append(errs, plan.Scenario.Errorf(fmt.Sprintf("faults[%d].set", plan.Steps[i].Fault), "%w", err))
			}
		}
	}
	for i := range plan.Ports {
		for way, m := range []*lab.Impairments{lab.Out: &plan.Ports[i].Out, lab.In: &plan.Ports[i].In} {
			if _, err := netemSpec(m.Specs, lab.Way(way)); err != nil {
				errs = append(errs, plan.Scenario.Errorf("impair", "%s: %w", plan.Ports[i].Name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// netemSpec is what netem does in place of specs.
func netemSpec(specs []impair.Spec, way lab.Way) (n netns.NetemSpec, err error) {
	if len(specs) == 0 {
		return n, nil
	}
	if len(specs) > 1 || way == lab.In {
		return n, errors.New("netem does one thing to what a port sends, and nothing to what it receives: write one impairment, with way: out")
	}
	s := specs[0]
	n = netns.NetemSpec{
		Delay: s.Delay, Jitter: s.Jitter, LossPPM: s.LossPPM, DuplicatePPM: s.DuplicatePPM, ReorderPPM: s.ReorderPPM, CorruptPPM: s.CorruptPPM,
	}
	left := s
	left.Delay, left.Jitter, left.LossPPM, left.DuplicatePPM, left.ReorderPPM, left.CorruptPPM = 0, 0, 0, 0, 0, 0
	left.ReorderDelay, left.DuplicateDelay = 0, 0
	if left != (impair.Spec{}) {
		return n, errors.New("netem knows loss, delay, jitter, duplicate, reorder and corrupt only, and no from or until")
	}
	if n.ReorderPPM > 0 && n.Delay == 0 {
		// Where others are delayed, those that are not overtake them.
		n.Delay = max(s.ReorderDelay, time.Microsecond)
		n.ReorderPPM = impair.PPM - n.ReorderPPM
	}
	return n, nil
}

// setNetem gives a port's direction to netem.
func (w *wires) setNetem(port int, way lab.Way, specs []impair.Spec) error {
	spec, err := netemSpec(specs, way)
	if err != nil || way == lab.In {
		return err
	}
	return w.netem.Netem(w.plan.Ports[port].Name, spec)
}
