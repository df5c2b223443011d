// Command fabrictest emulates RDMA fabrics, and tests the software and devices on them.
//
// It has flags, their checks, and output; the packages that it calls do the work. Each group
// of subcommands has a file of its own; their help texts are in the folder help.
//
// Exit codes: 0 success, 1 failure, 2 wrong arguments, 3 the machine was too busy for a
// verdict; 129, 130 and 143 if SIGHUP, Ctrl-C or SIGTERM ended it early.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/launch"
	"github.com/fabrictest/fabrictest/scenarios"
)

// Exit codes.
const (
	exitOK      = 0
	exitFailed  = 1
	exitUsage   = 2
	exitStarved = 3
)

func main() {
	os.Exit(execute(signalContext(), cli.Invocation(os.Args[0]), os.Args[1:], os.Stdout, os.Stderr))
}

// interruptedError is the signal that cancelled a context.
type interruptedError struct{ syscall.Signal }

func (e interruptedError) Error() string { return "interrupted" }

// signalInterval is the time in which two signals count as one: timeout(1) sends one to
// its program and another to the program's process group.
const signalInterval = 100 * time.Millisecond

// signalContext returns a context that is cancelled by the first Ctrl-C, SIGTERM or
// SIGHUP. Another one, more than signalInterval later, kills the program.
func signalContext() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, launch.StopSignals()...)
	go func() {
		s := <-signals
		if s == syscall.SIGHUP {
			signal.Ignore(syscall.SIGPIPE) // the terminal is gone, and the report must still be written
		}
		cancel(interruptedError{s.(syscall.Signal)})
		time.Sleep(signalInterval)
		signal.Stop(signals)
	}()
	return ctx
}

// exitError is the exit code of a program that was run for the user, which has printed
// its own errors. It becomes the exit code of this program.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// errFailed is a failure that was already printed.
var errFailed = errors.New("failed")

// execute runs the command args and returns the exit code. program is how the user calls it.
func execute(ctx context.Context, program string, args []string, stdout, stderr io.Writer) int {
	out, errs := &cli.PrintableWriter{W: stdout}, &cli.PrintableWriter{W: stderr}
	defer out.Flush()
	defer errs.Flush()
	root := newRootCommand(program)
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errs)
	started := false
	onRun(root, func() { started = true })
	cmd, err := root.ExecuteContextC(ctx)
	var usage *cli.Error
	var exit exitError
	var interrupted interruptedError
	var inFile *scenarios.Error
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &exit):
		return int(exit)
	case errors.Is(err, errFailed):
		return exitFailed
	case errors.As(context.Cause(ctx), &interrupted):
		fmt.Fprintf(errs, "fabrictest: %v\n", err)
		return 128 + int(interrupted.Signal)
	case errors.As(err, &usage) && errors.As(err, &inFile): // the help is of no use for a mistake in a scenario file
		fmt.Fprintf(errs, "fabrictest: %v\n", err)
		return exitUsage
	case !started || errors.As(err, &usage):
		fmt.Fprintf(errs, "fabrictest: %v\nSee '%s --help'.\n", err, cmd.CommandPath())
		return exitUsage
	default:
		fmt.Fprintf(errs, "fabrictest: %v\n", err)
		return exitFailed
	}
}

// onRun calls f when a command starts. Errors before that are wrong arguments.
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

// newRootCommand returns the command 'fabrictest'.
func newRootCommand(program string) *cobra.Command {
	root := &cobra.Command{
		Use:           "fabrictest",
		Short:         "Emulate RDMA fabrics, and test the software and devices on them",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noSuchCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddGroup(
		&cobra.Group{ID: groupScenarios, Title: "Scenarios:"},
		&cobra.Group{ID: groupLab, Title: "Your own fabric:"},
		&cobra.Group{ID: groupDevices, Title: "Devices:"},
		&cobra.Group{ID: groupOther, Title: "Other:"},
	)
	root.SetFlagErrorFunc(suggestFlags)
	root.SetHelpCommandGroupID(groupOther)
	root.SetCompletionCommandGroupID(groupOther)
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add(groupScenarios, newRunCommand(&runOptions{program: program}), newReplayCommand(&replayOptions{program: program, capture: cli.CaptureAll}))
	add(groupLab, newParentCommand("lab", "Bring up a fabric that stays up, run programs in its hosts, and impair its links",
		newLabUpCommand(program), newLabExecCommand(program), newLabSetCommand(), newLabListCommand(), newLabDownCommand(), newLabKernelCommand(program),
	), newMPIRunCommand(&mpirunOptions{program: program}), newExploreCommand(&exploreOptions{}), newTuneCommand(&tuneOptions{program: program}))
	add(groupDevices, newConformCommand(&conformOptions{program: program}), newAgentCommand(program), newCertifyCommand(&certifyOptions{program: program}), newInteropCommand(program))
	add(groupOther, newParentCommand("list", "List the scenarios, the conformance cases, the defects of NICs, and the platforms",
		newListScenariosCommand(), newListCasesCommand(), newListDefectsCommand(), newListPlatformsCommand(),
	), newParentCommand("capture", "Decode captures, or open them in Wireshark",
		newCaptureShowCommand(), newCaptureOpenCommand(),
	), newDoctorCommand(), newPerfCommand(program), newFuzzCommand(), newVersionCommand())
	root.AddCommand(processCommands()...) // hidden
	setHelp(root)
	return root
}

// The groups of commands in the help.
const (
	groupScenarios = "scenarios"
	groupLab       = "lab"
	groupDevices   = "devices"
	groupOther     = "other"
)
