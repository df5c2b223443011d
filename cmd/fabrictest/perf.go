package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/lab/perflab"
	"github.com/fabrictest/fabrictest/perf"
)

// newPerfCommand is `fabrictest perf`.
func newPerfCommand(program string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "perf",
		Short: "Measure the speed of the emulated NICs, and the memory of ranks",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	hidden := func(args []string, main func() error) *cobra.Command {
		return &cobra.Command{
			Use: args[len(args)-1], Hidden: true, Args: cobra.NoArgs,
			RunE: func(*cobra.Command, []string) error { return main() },
		}
	}
	cmd.AddCommand(newPerfQuickCommand(), newPerfIWARPCommand(), newPerfMemoryCommand(&perfMemory{program: program}), hidden(perflab.LabArgs, perflab.LabMain), hidden(perflab.HostArgs, perflab.HostMain))
	return cmd
}

func newPerfQuickCommand() *cobra.Command {
	return newMeasureCommand(perflab.Quick, &cobra.Command{
		Use:   "quick",
		Short: "Measure soft-RoCE beside plain UDP, in less than a minute",
	})
}

func newPerfIWARPCommand() *cobra.Command {
	return newMeasureCommand(perflab.IWARP, &cobra.Command{
		Use:   "iwarp",
		Short: "Measure soft-iWARP beside plain TCP, and datagram-iWARP, in about a minute",
	})
}

// newMeasureCommand makes a command of a measurement.
func newMeasureCommand(measure func(context.Context, perflab.Options) (*perf.Result, error), cmd *cobra.Command) *cobra.Command {
	var asJSON bool
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		out, progress := cmd.OutOrStdout(), newProgressLine(cmd.ErrOrStderr())
		q, err := measure(cmd.Context(), perflab.Options{Progress: progress.Report})
		progress.Clear()
		if err != nil {
			return err
		}
		if asJSON {
			err = printJSON(out, q)
		} else {
			err = q.WriteTable(out)
		}
		if err == nil && q.Verdict() == perf.Missed {
			err = errFailed
		}
		return err
	}
	jsonFlag(cmd, &asJSON, "print the result, with every sample, as JSON")
	return cmd
}
