package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/lab/kernel"
)

// hostWord stands in the place of a guest for the host's side of its link.
const hostWord = "host"

// onGuest returns a RunE that connects to the lab and calls run with the ID of the guest that the
// first argument names.
func onGuest(lab *string, run func(cmd *cobra.Command, remote *kernel.Remote, id int, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		id, err := kernel.ParseGuest(args[0])
		if err != nil {
			return err
		}
		remote, err := kernel.Connect(*lab)
		if err != nil {
			return err
		}
		return run(cmd, remote, id, args)
	}
}

// newLabKernelExecCommand returns the command 'fabrictest lab kernel exec'.
func newLabKernelExecCommand(lab *string) *cobra.Command {
	return &cobra.Command{
		Use:               "exec {GUEST | host} -- PROGRAM [ARGUMENT...]",
		Short:             "Run a program in a guest, or on the host side of its link",
		ValidArgsFunction: fixed("1", "2", hostWord),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.ArgsLenAtDash() != 1 || len(args) < 2 {
				return cli.Errorf("name one guest, or %s, and put the program behind --, as in 'fabrictest lab kernel exec 1 -- ibv_devinfo'", hostWord)
			}
			remote, err := kernel.Connect(*lab)
			if err != nil {
				return err
			}
			signals := make(chan os.Signal, 8)
			signal.Reset(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP) // they are forwarded to the program
			signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
			var code int
			if args[0] == hostWord {
				code, err = remote.Run(cmd.Context(), args[1:], signals)
			} else {
				var id int
				if id, err = kernel.ParseGuest(args[0]); err != nil {
					return err
				}
				code, err = remote.Exec(cmd.Context(), id, kernel.Command{
					Args: args[1:], Stdin: os.Stdin, Stdout: programOutput(cmd.OutOrStdout()), Stderr: programOutput(cmd.ErrOrStderr()), Signals: signals,
				})
			}
			return programResult(code, err)
		},
	}
}

// newLabKernelPutCommand returns the command 'fabrictest lab kernel put'.
func newLabKernelPutCommand(lab *string) *cobra.Command {
	return &cobra.Command{
		Use:   "put GUEST FILE [PATH]",
		Short: "Copy a file into a guest",
		Args:  cobra.RangeArgs(2, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := kernel.ParseGuest(args[0])
			if err != nil {
				return err
			}
			path := append(args, "")[2] // empty without PATH
			return kernel.CopyFile(cmd.Context(), *lab, id, args[1], path)
		},
	}
}

// newLabKernelDevicesCommand returns the command 'fabrictest lab kernel devices'.
func newLabKernelDevicesCommand(lab *string) *cobra.Command {
	return &cobra.Command{
		Use:       "devices GUEST DEVICES",
		Short:     "Replace the RDMA devices of a guest",
		Args:      cobra.ExactArgs(2),
		ValidArgs: []string{"rxe", "siw", "siw-crc", "both", "none"},
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := kernel.ParseGuest(args[0])
			if err != nil {
				return err
			}
			devices, err := kernel.ParseDevices(args[1])
			if err != nil {
				return &cli.Error{Err: err}
			}
			remote, err := kernel.Connect(*lab)
			if err != nil {
				return err
			}
			return remote.SetDevices(cmd.Context(), id, devices)
		},
	}
}

// newLabKernelRestartCommand returns the command 'fabrictest lab kernel restart'.
func newLabKernelRestartCommand(lab *string) *cobra.Command {
	return &cobra.Command{
		Use:   "restart GUEST",
		Short: "Restart a guest",
		Args:  cobra.ExactArgs(1),
		RunE: onGuest(lab, func(cmd *cobra.Command, remote *kernel.Remote, id int, args []string) error {
			return remote.Restart(cmd.Context(), id)
		}),
	}
}

// newLabKernelConsoleCommand returns the command 'fabrictest lab kernel console'.
func newLabKernelConsoleCommand(lab *string) *cobra.Command {
	return &cobra.Command{
		Use:   "console GUEST",
		Short: "Print the console output of a guest since its boot",
		Args:  cobra.ExactArgs(1),
		RunE: onGuest(lab, func(cmd *cobra.Command, remote *kernel.Remote, id int, args []string) error {
			text, err := remote.Console(cmd.Context(), id)
			if err == nil {
				_, err = io.WriteString(cmd.OutOrStdout(), text)
			}
			return err
		}),
	}
}

// newLabKernelStatusCommand returns the command 'fabrictest lab kernel status'.
func newLabKernelStatusCommand(lab *string) *cobra.Command {
	cmd := &cobra.Command{Use: "status", Short: "Print the state of a lab and its guests", Args: cobra.NoArgs}
	return withJSON(cmd, printsJSON, func(cmd *cobra.Command, _ []string) (listing, error) {
		info, err := kernel.Query(cmd.Context(), *lab)
		if err != nil {
			return listing{}, err
		}
		l := listing{value: info, write: info.WriteTable}
		for _, g := range info.Guests {
			l.failed = l.failed || !g.Up
		}
		return l, nil
	})
}

// newLabKernelDownCommand returns the command 'fabrictest lab kernel down'.
func newLabKernelDownCommand(lab *string) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "Stop all guests",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			remote, err := kernel.Connect(*lab)
			if err != nil {
				return err
			}
			if err := remote.Down(cmd.Context()); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "Kernel lab %s is down.\n", *lab)
			return err
		},
	}
}

// newLabKernelSetCommand returns the command 'fabrictest lab kernel set'.
func newLabKernelSetCommand(name *string) *cobra.Command {
	return &cobra.Command{
		Use:               "set GUEST up|down|clean|KEY=VALUE...",
		Short:             "Impair, cut or restore the link of a guest",
		Args:              atLeast(2, "name a guest and what is to become of its link, as in 'fabrictest lab kernel set 1 loss=5%'"),
		ValidArgsFunction: completeKernelSet(name),
		RunE: func(cmd *cobra.Command, args []string) error {
			return kernel.ChangeLinks(cmd.Context(), *name, args[0], args[1:])
		},
	}
}

// completeKernelSet offers guests, and then the changes of their links.
func completeKernelSet(name *string) completer {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return completeSet(cmd, args, typed)
		}
		words := []cobra.Completion{kernel.AllGuests}
		if info, err := kernel.Query(cmd.Context(), *name); err == nil {
			for _, g := range info.Guests {
				words = append(words, fmt.Sprint(g.ID))
			}
		}
		return withPrefix(typed, words), cobra.ShellCompDirectiveNoFileComp
	}
}

// newLabKernelCommand returns the command 'fabrictest lab kernel' with its subcommands. program is how
// the user calls fabrictest.
func newLabKernelCommand(program string) *cobra.Command {
	lab := kernel.DefaultName
	cmd := newParentCommand("kernel", "Guests with stock Debian kernels, whose own soft-RoCE (rxe) and soft-iWARP (siw) are devices",
		newLabKernelBuildCommand(), newLabKernelCheckCommand(), newLabKernelUpCommand(program, &lab), newLabKernelRunCommand(),
		newLabKernelExecCommand(&lab), newLabKernelPutCommand(&lab),
		newLabKernelDevicesCommand(&lab), newLabKernelSetCommand(&lab), newLabKernelRestartCommand(&lab), newLabKernelConsoleCommand(&lab),
		newLabKernelStatusCommand(&lab), newLabKernelDownCommand(&lab),
	)
	cmd.PersistentFlags().StringVar(&lab, "lab", lab, "the lab called `NAME`")
	completeFlag(cmd, "lab", completeFrom(func(context.Context) ([]cobra.Completion, error) { return kernel.List() }))
	return cmd
}
