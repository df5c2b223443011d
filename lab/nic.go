package lab

import (
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/scenarios"
	"github.com/fabrictest/fabrictest/scenarios/workload"
)

// callsHeld is how many connections a NIC's manager keeps where they are made
// and torn down all the time: enough for those in use and in time wait, and few
// enough that one which forgets to free them is soon found out.
const callsHeld = 16

// Provider is the kind of NIC that the hosts of a scenario have.
func Provider(s *scenarios.Scenario) (*nics.Provider, error) {
	p, err := nics.Find(s.NIC.Provider)
	if err != nil {
		return nil, s.Errorf("nic.provider", "%w", err)
	}
	return p, nil
}

// NICs returns how the NICs of a host are opened: what the scenario says of them,
// and quirks besides, on every host.
func NICs(s *scenarios.Scenario, host string, quirks ...string) (nics.Opener, error) {
	p, err := Provider(s)
	if err != nil {
		return nil, err
	}
	setup, err := setupOf(s, p, host, quirks)
	if err != nil {
		return nil, err
	}
	o, err := p.With(setup)
	if err != nil {
		return nil, s.Errorf("nic", "%w", err)
	}
	return o, nil
}

// workloadOf is the workload as the provider's NICs run it: with their reliable
// service, if it names none.
func workloadOf(s *scenarios.Scenario, p *nics.Provider) workload.Config {
	return s.Workload.ForDevice(p.Caps | p.ReliableCaps)
}

// setupOf reads what the scenario says of a host's NICs.
func setupOf(s *scenarios.Scenario, p *nics.Provider, host string, quirks []string) (setup nics.Setup, err error) {
	setup.Quirks, setup.Markers = slices.Clone(quirks), s.NIC.Markers
	flawed := len(s.NIC.On) == 0 || scenarios.MatchHost(s.NIC.On, host)
	for i, name := range s.NIC.Quirks {
		if err := p.CheckQuirk(name); err != nil { // a mistake shows on every host
			return setup, s.Errorf(fmt.Sprintf("nic.quirks[%d]", i), "%w", err)
		}
		if flawed {
			setup.Quirks = append(setup.Quirks, name)
		}
	}
	for _, name := range quirks {
		if err := p.CheckQuirk(name); err != nil {
			return setup, err
		}
	}
	switch s.NIC.ICRC {
	case "", "checked":
	case "offloaded":
		setup.ICRCOffloaded = true
	default:
		return setup, s.Errorf("nic.icrc", "%q is none of checked, offloaded", s.NIC.ICRC)
	}
	switch s.NIC.RateControl {
	case "", "dcqcn":
	case "off":
		setup.IgnoreMarks = true
	default:
		return setup, s.Errorf("nic.rate_control", "%q is none of dcqcn, off", s.NIC.RateControl)
	}
	if s.Workload.Kind == workload.Calls {
		setup.Calls = callsHeld
	}
	if w := workloadOf(s, p); p.ReliableCaps != 0 && w.Uses(workload.ServiceRD) {
		// A queue pair has many peers: what one of them does wrong is no reason to stop
		// talking with the others.
		setup.Reliable, setup.Isolate = true, true
		setup.Budget.Wait, setup.Budget.All, setup.Budget.Busy = w.RetryBudget()
	}
	return setup, nil
}
