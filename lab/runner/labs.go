package runner

import (
	"runtime"
	"time"

	"github.com/fabrictest/fabrictest/conformance/judge"
	"github.com/fabrictest/fabrictest/lab/bench"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/scenarios"
)

// Limits of a case that explores schedules, after which it counts as hung: for the case, and for
// each schedule. The longest schedule has a few thousand events and a few timeouts.
const (
	caseEvents, scheduleEvents     = 20_000_000, 50_000
	caseTime, scheduleTime         = 2 * time.Hour, 10 * time.Second
	realCaseTime, realScheduleTime = 2 * time.Minute, 5 * time.Second
)

// labs opens labs for emulated devices.
type labs struct {
	tier      scenarios.Tier
	workers   int // cases at a time; 0 for the default
	schedules int // that cases explore; 0 for their own number
}

// caseWorkers returns the number of cases that run at a time. By default it is 1 in real
// time, because other cases would disturb those that measure time.
func (o *labs) caseWorkers() int {
	switch {
	case o.workers > 0:
		return o.workers
	case o.tier == scenarios.NetNS:
		return 1
	}
	return runtime.GOMAXPROCS(0)
}

// open opens the lab for a device.
func (o *labs) open(d *judge.Device) (judge.Lab, error) {
	provider, err := nics.Find(d.Name)
	if err != nil {
		return nil, err
	}
	var restrictions nics.Restrictions
	if d.Profile != "" {
		profile, err := nics.FindProfile(d.Profile)
		if err != nil {
			return nil, err
		}
		restrictions = profile.Restrictions
	}
	if o.tier == scenarios.Sim {
		opt := bench.SimOptions{Restrictions: restrictions}
		if o.schedules > 0 {
			opt.MaxEvents, opt.MaxTime = caseEvents+uint64(o.schedules)*scheduleEvents, caseTime+time.Duration(o.schedules)*scheduleTime
		}
		return bench.InSimulation(provider, opt), nil
	}
	opt := bench.NamespaceOptions{Parallel: o.caseWorkers(), Restrictions: restrictions}
	if o.schedules > 0 {
		opt.MaxTime = realCaseTime + time.Duration(o.schedules)*realScheduleTime
	}
	return bench.InNamespaces(provider, opt)
}
