// Command fabrictest emulates RDMA fabrics and proves things about them.
//
// It is the composition root: flags become devices, networks and workloads here,
// and nowhere else. Each subcommand has a file of its own.
//
// Exit codes: 0 everything held, 1 something did not, 2 it was called wrongly.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(execute(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// usageError is a complaint about how the program was called.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// errFailed is a failure that has been reported already.
var errFailed = errors.New("failed")

// execute runs the program and returns its exit code.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRootCommand()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	started := false
	onRun(root, func() { started = true })
	cmd, err := root.ExecuteContextC(ctx)
	var usage *usageError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errFailed):
		return exitFailed
	case !started || errors.As(err, &usage):
		fmt.Fprintf(stderr, "fabrictest: %v\nSee '%s --help'.\n", err, cmd.CommandPath())
		return exitUsage
	default:
		fmt.Fprintf(stderr, "fabrictest: %v\n", err)
		return exitFailed
	}
}

// onRun calls f when a command starts: what fails before that is a matter of
// usage.
func onRun(cmd *cobra.Command, f func()) {
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			f()
			return run(cmd, args)
		}
	}
	for _, sub := range cmd.Commands() {
		onRun(sub, f)
	}
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "fabrictest",
		Short: "Emulate RDMA fabrics and prove things about them",
		Long: `fabrictest emulates RDMA fabrics and proves things about them.

The same seed gives the same run, byte for byte. A failure prints the command
that replays it.`,
		Example: `  fabrictest run
  fabrictest run --seed 7 --pcap out/
  fabrictest run 'rc/*' --messages 1000`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(newRunCommand(), newInteropCommand(), newVersionCommand())
	return root
}
