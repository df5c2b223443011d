package simlab

import (
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/scenarios"
	"github.com/fabrictest/fabrictest/scenarios/workload"
)

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

// eachRank calls f for the ranks on the hosts of a step.
func (r *run) eachRank(step *lab.Step, f func(*rank)) {
	for _, host := range step.Hosts {
		if host < len(r.ranks) {
			f(r.ranks[host])
		}
	}
}

// kill ends a rank and its NICs at once, as SIGKILL would. Other ranks learn of it
// from the control channel. A rank that has ended is not affected.
func (r *run) kill(k *rank) {
	if k.observed.State != "" {
		return
	}
	k.observed.State, k.ended = lab.Killed, time.Duration(r.world.Now())
	k.observed.Waiting = k.status()
	r.addError(k.proc.Kill())
	for _, nic := range r.fabric.nics[k.observed.Rank] {
		r.addError(nic.Device.Close())
	}
}

// freeze pauses a rank's program, and its ports send and receive nothing, as if its
// process were stopped. Unlike in a stopped process, the timers of the NIC
// continue, so that a freeze longer than its retries breaks connections.
func (r *run) freeze(k *rank) {
	if k.observed.State == "" {
		k.proc.Pause()
	}
	for _, p := range r.fabric.ports[k.observed.Rank] {
		p.Freeze()
	}
}

// thaw resumes the ports and the process of a frozen host.
func (r *run) thaw(k *rank) {
	for _, p := range r.fabric.ports[k.observed.Rank] {
		p.Thaw()
	}
	if k.observed.State == "" {
		k.proc.Resume()
	}
}

// breakQPs moves a rank's queue pairs to the error state, in a separate coroutine
// because verb calls take virtual time.
func (r *run) breakQPs(k *rank) {
	if k.observed.State != "" || k.program == nil {
		return
	}
	breaker, ok := k.program.(workload.Breaker)
	if !ok {
		r.addError(fmt.Errorf("%s: the workload %s does not support qp-error", k.name(), r.plan.Scenario.Workload.Kind))
		return
	}
	r.world.Go("qp-error of "+k.name(), func(*sim.Proc) error {
		if err := breaker.Break(); err != nil && k.observed.State == "" {
			r.addError(fmt.Errorf("qp-error of %s: %w", k.name(), err))
		}
		return nil
	})
}
