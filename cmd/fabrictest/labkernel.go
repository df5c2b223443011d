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
		Long: `Boot stock Debian kernels in QEMU, whose own soft-RoCE (rxe) and soft-iWARP (siw) are
devices to test and peers to talk to. It takes no hardware, no root where
/dev/net/tun may be opened, and no KVM; where there is KVM it is used.

The first time, the guests' kernel and files are made from Debian's packages, and siw,
which Debian leaves out, from Debian's source; what the machine lacks for it is named
with the command that installs it. After that it takes neither apt nor a network.

A lab stays up until it is taken down, or its process ends, and leaves nothing behind
but what its guests printed. All guests are on one wire: this side of it is 10.77.0.1
and fd77::1, guest 1 is 10.77.0.11 and fd77::11. Programs are run and files are put
over another link, so that nothing else is on the wire.`,
		Example: `  fabrictest lab kernel up --kernel 6.12 --devices rxe
  fabrictest lab kernel exec 1 -- ibv_devinfo -v
  fabrictest lab kernel put 1 ./my-program /tmp/my-program
  fabrictest lab kernel exec host -- ping -c 3 10.77.0.11
  fabrictest lab kernel down`,
		Args: noSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
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
