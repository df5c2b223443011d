package main

import (
	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/lab/runner"
)

// overrides are the flags that change scenarios.
type overrides struct {
	runner.Overrides
	seed  string
	given func(flag string) bool // on the command line
}

const maxMessages = 1_000_000

// flags adds the flags to a command. The strings that it passes are parts of the help of each flag.
func (o *overrides) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	o.given = f.Changed
	seedFlag(cmd, &o.seed, "", "happens", " (default: each scenario's own)")
	f.IntVar(&o.Messages, "messages", 0, "messages of each flow (default: as the scenario says)")
	providerFlag(cmd, &o.Provider, "", "run every scenario with the NICs of", " (default: each scenario's own)")
	defectFlag(cmd, &o.Defects, "every NIC")
	cableFlag(cmd, &o.Cable)
}

const defaultSeed = 1 // of commands without scenarios, which have seeds of their own

// check returns the seed, 0 if --seed is not given, or an error for wrong flags.
func (o *overrides) check() (seed uint64, err error) {
	if seed, err = cli.ParseSeed(o.seed, 0); err != nil {
		return 0, err
	}
	if o.given("messages") && o.Messages < 1 || o.Messages > maxMessages {
		return 0, cli.Errorf("--messages %d: give a number in 1..%d", o.Messages, maxMessages)
	}
	return seed, o.Overrides.Check()
}

// addTo adds the overrides to a command line.
func (o *overrides) addTo(l *cli.Line, seed uint64) *cli.Line {
	return l.Number("seed", seed).Number("messages", uint64(o.Messages)).Flag("provider", o.Provider).Flag("cable", string(o.Cable)).Flag("defect", o.Defects...)
}
