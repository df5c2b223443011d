package main

import (
	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/lab/kernel"
)

func newLabKernelCommand(program string) *cobra.Command {
	lab := kernel.DefaultName
	cmd := &cobra.Command{
		Use:   "kernel",
		Short: "Guests with stock Debian kernels, whose own soft-RoCE (rxe) and soft-iWARP (siw) are devices",
		Args:  noSuchCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVar(&lab, "lab", lab, "the lab called `NAME`")
	_ = cmd.RegisterFlagCompletionFunc("lab", completeKernelLabs)
	cmd.AddCommand(
		newLabKernelBuildCommand(), newLabKernelCheckCommand(), newLabKernelUpCommand(program, &lab), newLabKernelRunCommand(),
		newLabKernelExecCommand(&lab), newLabKernelPutCommand(&lab),
		newLabKernelDevicesCommand(&lab), newLabKernelSetCommand(&lab), newLabKernelRestartCommand(&lab), newLabKernelConsoleCommand(&lab),
		newLabKernelStatusCommand(&lab), newLabKernelDownCommand(&lab),
	)
	return cmd
}

func completeKernelLabs(_ *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	names, err := kernel.List()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return beginning(typed, names), cobra.ShellCompDirectiveNoFileComp
}
