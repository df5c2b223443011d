package main

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/internal/cmdline"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/lab/runner"
	"github.com/fabrictest/fabrictest/scenarios"
)

const maxSeeds = 10_000_000

// runSeeds runs every scenario in simulation with --seeds seeds, from first on.
func (o *runOptions) runSeeds(cmd *cobra.Command, chosen []scenarios.Selected, first uint64) error {
	for _, flag := range []string{"out", "json", "capture", "netem"} {
		if o.given(flag) {
			return cmdline.Errorf("--seeds keeps no files: leave out --%s, and run the command that is printed for a failure with it", flag)
		}
	}
	if o.seeds < 1 || o.seeds > maxSeeds {
		return cmdline.Errorf("--seeds %d: give a number in 1..%d", o.seeds, maxSeeds)
	}
	if tiers, err := scenarios.ParseTiers(o.on); err != nil {
		return err
	} else if tiers != nil && !slices.Equal(tiers, []scenarios.Tier{scenarios.Sim}) {
		return cmdline.Errorf("--seeds is for the simulation, where a seed decides all that happens: leave out --on, or give --on sim")
	}
	r := &runner.Seeds{
		First: max(first, 1), Count: o.seeds, Out: cmd.OutOrStdout(), Status: cmd.ErrOrStderr(),
		Tasks:  runner.DropIncompatible(o.Tasks(chosen, []scenarios.Tier{scenarios.Sim}, lab.Options{})),
		Replay: func(t *runner.Task) string { return o.replay(t.Given, t.Tier, t.Options.Seed) },
	}
	if len(r.Tasks) == 0 {
		return cmdline.Errorf("none of the scenarios chosen runs in simulation: 'fabrictest list scenarios' says where each does")
	}
	passed, err := r.Run(cmd.Context())
	if err == nil && !passed {
		return errFailed
	}
	return err
}
