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

// checkNetem returns an error for each part of a plan that netem does not support.
func checkNetem(plan *lab.Plan) error {
	cannot := func(key, what string) error {
		return plan.Scenario.Errorf(key, "the kernel's netem cannot %s: use the user-space switch", what)
	}
	var errs []error
	if len(plan.Scenario.Events) > 0 {
		errs = append(errs, cannot("events", "change single packets"))
	}
	for i := range plan.Steps {
		if s := &plan.Steps[i]; s.Do == scenarios.Partition {
			errs = append(errs, cannot(fmt.Sprintf("faults[%d]", s.Fault), "partition hosts"))
		}
		for _, set := range plan.Steps[i].Set {
			if _, err := netemSpec(set.Specs, set.Direction); err != nil {
				errs = append(errs, plan.Scenario.Errorf(fmt.Sprintf("faults[%d].set", plan.Steps[i].Fault), "%w", err))
			}
		}
	}
	for i := range plan.Ports {
		for dir, m := range []*lab.Impairments{lab.Out: &plan.Ports[i].Out, lab.In: &plan.Ports[i].In} {
			if _, err := netemSpec(m.Specs, lab.Direction(dir)); err != nil {
				errs = append(errs, plan.Scenario.Errorf("impair", "%s: %w", plan.Ports[i].Name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// netemSpec converts the impairments of a direction to netem's parameters. netem reorders a share
// of packets by not delaying them, impair.Spec by delaying them: netemSpec converts the share if s has no Delay.
func netemSpec(specs []impair.Spec, dir lab.Direction) (n netns.NetemSpec, err error) {
	if len(specs) == 0 {
		return n, nil
	}
	if len(specs) > 1 || dir == lab.In {
		return n, errors.New("netem supports one impairment of the packets that a port sends, and none of those it receives: write one impairment, with \"way: out\"")
	}
	s := specs[0]
	n = netns.NetemSpec{
		Delay: s.Delay, Jitter: s.Jitter, LossPPM: s.LossPPM, DuplicatePPM: s.DuplicatePPM, ReorderPPM: s.ReorderPPM, CorruptPPM: s.CorruptPPM,
	}
	unsupported := s
	unsupported.Delay, unsupported.Jitter, unsupported.LossPPM, unsupported.DuplicatePPM, unsupported.ReorderPPM, unsupported.CorruptPPM = 0, 0, 0, 0, 0, 0
	unsupported.ReorderDelay, unsupported.DuplicateDelay = 0, 0
	if unsupported != (impair.Spec{}) {
		return n, errors.New("netem supports loss, delay, jitter, duplicate, reorder and corrupt only, without \"from\" and \"until\"")
	}
	if n.ReorderPPM > 0 && n.Delay == 0 {
		// netem reorders by sending some packets without the delay of the others.
		n.Delay = max(s.ReorderDelay, time.Microsecond)
		n.ReorderPPM = impair.PPM - n.ReorderPPM
	}
	return n, nil
}

// setNetem configures netem for one direction of a port.
func (w *switchSet) setNetem(port int, dir lab.Direction, specs []impair.Spec) error {
	spec, err := netemSpec(specs, dir)
	if err != nil || dir == lab.In {
		return err
	}
	return w.netem.Netem(w.plan.Ports[port].Name, spec)
}
