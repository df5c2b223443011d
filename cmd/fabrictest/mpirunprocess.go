package main

import (
	"os/signal"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/lab/mpihost/mpirun"
)

// mpiProcessCommands are what fabrictest starts itself as for mpirun.
func mpiProcessCommands() []*cobra.Command {
	return []*cobra.Command{{
		Use: mpirun.ProcessCommand, Hidden: true, Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			signal.Reset() // it knows best what to do on which
			code, err := mpirun.ProcessMain()
			if err == nil && code != 0 {
				return exitError(code)
			}
			return err
		},
	}, newWorkloadCommand(), newMemoryPointCommand()}
}
