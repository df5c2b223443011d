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

// do is a step of the plan, in an event at its time.
func (r *run) do(step *lab.Step) {
	r.seen.Steps = append(r.seen.Steps, lab.Done{Step: step, At: time.Duration(r.world.Now())})
	switch step.Do {
	case scenarios.Down:
		for _, i := range step.Ports {
			if step.Undo {
				r.fabric.places[i].SetUp()
			} else {
				r.fabric.places[i].SetDown()
			}
		}
	case scenarios.Partition:
		r.fabric.partition(r.plan, step)
	case scenarios.SetImpair:
		for _, set := range step.Set {
			r.fail(r.fabric.setImpair(set))
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

// fail keeps what went wrong in the harness itself.
func (r *run) fail(err error) {
	if err != nil {
		r.problem = errors.Join(r.problem, err)
	}
}

func (r *run) eachRank(step *lab.Step, f func(*rank)) {
	for _, host := range step.Hosts {
		for _, k := range r.ranks {
			if k.host == host {
				f(k)
			}
		}
	}
}

// kill ends a rank and its NICs as a kill -9 of its process would: in the middle
// of what it is at, without a word to anybody. The others learn from the control
// channel that it is gone. A rank that has ended already is left as it is.
func (r *run) kill(k *rank) {
	if k.seen.State != "" {
		return
	}
	k.seen.State, k.ended = lab.Killed, time.Duration(r.world.Now())
	k.seen.Waiting = k.status()
	r.fail(k.proc.Kill())
	for _, d := range r.fabric.devices[k.host] {
		r.fail(d.Close())
	}
}

// freeze has a rank's program stand still, and its ports take nothing and give
// nothing, as if its process were stopped. One thing it cannot show: the NIC is
// no part of the program here, and its timers go on. After a freeze that is
// longer than its retries last, a NIC which waits for an answer has given up,
// where a stopped process would find the answer in its socket.
func (r *run) freeze(k *rank) {
	if k.seen.State == "" {
		k.proc.Pause()
	}
	for _, p := range r.fabric.ports[k.host] {
		p.Freeze()
	}
}

func (r *run) thaw(k *rank) {
	for _, p := range r.fabric.ports[k.host] {
		p.Thaw()
	}
	if k.seen.State == "" {
		k.proc.Resume()
	}
}

// breakQPs moves a rank's queue pairs to Error, from a program of its own: the
// verbs it takes cost time, as all do.
func (r *run) breakQPs(k *rank) {
	if k.seen.State != "" || k.program == nil {
		return
	}
	b, ok := k.program.(workload.Breaker)
	if !ok {
		r.fail(fmt.Errorf("%s: queue pairs of the workload %s cannot be broken", k.name(), r.plan.Scenario.Workload.Kind))
		return
	}
	r.world.Go("what breaks "+k.name(), func(*sim.Proc) error {
		if err := b.Break(); err != nil && k.seen.State == "" {
			r.fail(fmt.Errorf("breaking the queue pairs of %s: %w", k.name(), err))
		}
		return nil
	})
}
