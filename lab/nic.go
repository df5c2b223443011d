package lab

import (
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/scenarios"
	"github.com/fabrictest/fabrictest/scenarios/workload"
)

// maxCMConnections bounds the connections of a connection manager for the calls
// workload: enough for connections in use and in time wait, and few enough that a
// leak is noticed.
const maxCMConnections = 16

// Provider returns the provider of the scenario's NICs.
func Provider(s *scenarios.Scenario) (*nics.Provider, error) {
	p, err := nics.Find(s.NIC.Provider)
	if err != nil {
		return nil, s.Errorf("nic.provider", "%w", err)
	}
	return p, nil
}

// NICs returns an opener for the NICs of a host, with the settings of the scenario
// and additional defects.
func NICs(s *scenarios.Scenario, host string, defects ...string) (nics.Opener, error) {
	p, err := Provider(s)
	if err != nil {
		return nil, err
	}
	setup, err := setupOf(s, p, host, defects)
	if err != nil {
		return nil, err
	}
	o, err := p.NewOpener(setup)
	if err != nil {
		return nil, s.Errorf("nic.options", "%w", err)
	}
	return o, nil
}

// workloadOf returns the workload of a scenario. If it names no service, it gets the provider's
// reliable one.
func workloadOf(s *scenarios.Scenario, p *nics.Provider) workload.Config {
	return s.Workload.ForDevice(p.Caps | p.ReliableCaps)
}

// setupOf converts the "nic" section of the scenario to the setup of a host's NICs, with
// additional defects and the options that the workload needs.
func setupOf(s *scenarios.Scenario, p *nics.Provider, host string, defects []string) (setup nics.Setup, err error) {
	setup.Defects, setup.Options = slices.Clone(defects), nics.Options{}
	for name, value := range s.NIC.Options {
		setup.Options[name] = value
	}
	defective := len(s.NIC.On) == 0 || scenarios.MatchesAny(s.NIC.On, host)
	for i, name := range s.NIC.Defects {
		if err := p.CheckRuntimeDefect(name); err != nil { // an unknown name is an error on every host
			return setup, s.Errorf(fmt.Sprintf("nic.defects[%d]", i), "%w", err)
		}
		if defective {
			setup.Defects = append(setup.Defects, name)
		}
	}
	for _, name := range defects {
		if err := p.CheckRuntimeDefect(name); err != nil {
			return setup, err
		}
	}
	if s.Workload.Kind == workload.Calls && slices.Contains(p.Options, "max_cm_connections") {
		setup.Options["max_cm_connections"] = maxCMConnections
	}
	if w := workloadOf(s, p); p.ReliableCaps != 0 && w.Uses(workload.ServiceRD) {
		// A queue pair has many peers: an error of one must not affect the others.
		setup.Options["reliable"], setup.Options["isolate_peers"] = true, true
		setup.Options["retry_timeout"], setup.Options["retry_total"], setup.Options["rnr_total"] = w.RetryBudget()
	}
	return setup, nil
}
