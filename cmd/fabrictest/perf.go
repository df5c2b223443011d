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
		Long: `Measure two hosts in network namespaces, a process and a processor each:

  - WRITEs of 1 MiB beside a stream of bare UDP sockets with segmentation
    offload that does as much work (a copy and a CRC on each side), and both
    without the CRC;
  - half round trips of 8 bytes beside those of bare UDP sockets, spinning
    beside spinning and blocking beside blocking;
  - the rate of 64-byte sends, over 1 to 64 queue pairs;
  - WRITE, SEND and READ of 64 B to 4 MiB;
  - the memory of an idle host.

` + howMeasured,
	})
}

func newPerfIWARPCommand() *cobra.Command {
	return newMeasureCommand(perflab.IWARP, &cobra.Command{
		Use:   "iwarp",
		Short: "Measure soft-iWARP beside plain TCP, and datagram-iWARP, in about a minute",
		Long: `Measure two hosts in network namespaces, a process and a processor each:

  - WRITEs of 64 B to 4 MiB beside a stream of plain TCP that does as much work
    (a copy and a CRC32c on each side), and both without the CRC;
  - half round trips of 8 and 64 bytes beside those of plain TCP, spinning
    beside spinning and blocking beside blocking;
  - the rate of 64-byte sends, over 1 to 64 queue pairs;
  - SEND and READ of 64 B to 4 MiB;
  - unreliable datagrams of datagram-iWARP beside soft-iWARP: half round trips of
    64 bytes, and sends of 2 KiB;
  - the memory of an idle host.

` + howMeasured,
	})
}

const howMeasured = `What is compared takes turns, and the limit is measured twice in each turn: how
much it differs from itself is the noise, and where that is too much the result
says that nothing can be concluded. The exit code is 1 if a target was missed.`

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
