package main

import (
	"os/signal"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/lab/kernel"
	"github.com/fabrictest/fabrictest/lab/live"
	_ "github.com/fabrictest/fabrictest/lab/mpihost" // lets this program be a rank
	"github.com/fabrictest/fabrictest/lab/mpihost/mpirun"
	"github.com/fabrictest/fabrictest/lab/nslab"
)

// processCommands are the hidden commands with which fabrictest starts itself as a
// process of a lab.
func processCommands() []*cobra.Command {
	withoutCode := func(main func() error) func() (int, error) {
		return func() (int, error) { return 0, main() }
	}
	return []*cobra.Command{
		newProcessCommand(nslab.LabCommand, withoutCode(nslab.LabMain)), newProcessCommand(nslab.RankCommand, withoutCode(nslab.RankMain)),
		newProcessCommand(live.ServeCommand, withoutCode(live.ServeMain)), newProcessCommand(live.ProgramCommand, live.ProgramMain),
		newProcessCommand(kernel.ServeCommand, withoutCode(kernel.ServeMain)), newProcessCommand(kernel.ProgramCommand, kernel.ProgramMain),
		newProcessCommand(mpirun.ProcessCommand, mpirun.ProcessMain),
		{
			Use: mpirun.WorkloadCommand, Hidden: true, DisableFlagParsing: true,
			RunE: func(_ *cobra.Command, args []string) error { return mpirun.WorkloadMain(args) },
		},
		{
			Use: mpirun.MemoryCommand, Hidden: true, Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				return mpirun.MemoryMain(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
			},
		},
	}
}

// newProcessCommand makes a hidden command of the main function of a process, which
// handles signals itself.
func newProcessCommand(name string, main func() (code int, err error)) *cobra.Command {
	return &cobra.Command{
		Use: name, Hidden: true, Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			signal.Reset()
			code, err := main()
			if err == nil && code != 0 {
				return exitError(code)
			}
			return err
		},
	}
}
