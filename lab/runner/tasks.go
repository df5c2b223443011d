package runner

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/internal/cmdline"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/scenarios"
)

// Overrides change scenarios before they run.
type Overrides struct {
	Messages int    // of each flow; 0 for the scenario's own number
	Provider string // of all NICs; empty for the scenario's own
	Defects  []string
}

// Check returns an error for a provider that does not exist, and for defects that the NICs
// cannot be given.
func (o *Overrides) Check() error {
	check := nics.CheckRuntimeDefect
	if o.Provider != "" {
		p, err := nics.Find(o.Provider)
		if err != nil {
			return cmdline.Errorf("--provider: %w", err)
		}
		check = p.CheckRuntimeDefect
	}
	for _, q := range o.Defects {
		if err := check(q); err != nil {
			return nics.DefectFlagError(err)
		}
	}
	return nil
}

// Tasks returns a task for each scenario and each tier that it runs on, tier by tier, with the
// same options. Scenarios that cannot run with the provider or the defects are marked as
// incompatible.
func (o *Overrides) Tasks(chosen []scenarios.Selected, tiers []scenarios.Tier, options lab.Options) (tasks []Task) {
	for i := range chosen {
		s := &chosen[i]
		if o.Provider != "" {
			s.Scenario = lab.WithProvider(s.Scenario, o.Provider)
		}
		if o.Messages > 0 {
			s.Workload.Messages = o.Messages
		}
	}
	for _, tier := range tiers {
		for _, s := range chosen {
			if !s.RunsOn(tier) {
				continue
			}
			t := Task{Scenario: s.Scenario, Given: s.Given, Tier: tier, Options: options}
			t.Options.Defects, t.Options.Netem = o.Defects, options.Netem && tier == scenarios.NetNS
			if o.Provider != "" || len(o.Defects) > 0 { // otherwise the lab reports a mistake in the file
				t.Incompatible = lab.Incompatibility(s.Scenario, tier, o.Defects...)
			}
			tasks = append(tasks, t)
		}
	}
	return tasks
}

// DropIncompatible returns the tasks without those that cannot run with their NICs.
func DropIncompatible(tasks []Task) []Task {
	return slices.DeleteFunc(tasks, func(t Task) bool { return t.Incompatible != "" })
}

// Tiers returns the named tiers. Without names it returns both, or simulation alone where
// network namespaces do not work, with the reason.
func Tiers(names []string) (tiers []scenarios.Tier, why string, err error) {
	if tiers, err = scenarios.ParseTiers(names); err != nil || tiers != nil {
		return tiers, "", err
	}
	if cannot := netns.Available(); cannot != nil {
		return []scenarios.Tier{scenarios.Sim}, cannot.Error(), nil
	}
	return []scenarios.Tier{scenarios.Sim, scenarios.NetNS}, "", nil
}

// DescribeState returns the state of each rank of a task as text.
func (t *Task) DescribeState(all []lab.RankState) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s on %s:", t.Scenario.Name, t.Tier)
	for _, r := range all {
		fmt.Fprintf(&b, "\n  rank %d on %s: %s", r.Rank, r.Host, strings.ReplaceAll(strings.TrimSpace(r.State), "\n", "\n    "))
	}
	return b.String()
}
