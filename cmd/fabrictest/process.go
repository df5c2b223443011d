package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fabrictest/fabrictest/emu/defects"
	"github.com/fabrictest/fabrictest/internal/mutant"
	"github.com/fabrictest/fabrictest/lab/kernel"
	"github.com/fabrictest/fabrictest/lab/live"
	_ "github.com/fabrictest/fabrictest/lab/mpihost" // lets this program be a rank
	"github.com/fabrictest/fabrictest/lab/mpihost/mpirun"
	"github.com/fabrictest/fabrictest/lab/nslab"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/scenarios"
)

// processCommands are the hidden commands that run fabrictest as a process of a lab.
func processCommands() []*cobra.Command {
	withoutCode := func(main func() error) func() (int, error) {
		return func() (int, error) { return 0, main() }
	}
	return []*cobra.Command{
		newProcessCommand(nslab.LabCommand, withoutCode(nslab.LabMain)), newProcessCommand(nslab.RankCommand, withoutCode(nslab.RankMain)),
		newProcessCommand(live.ServeCommand, withoutCode(live.ServeMain)), newProcessCommand(live.ProgramCommand, live.ProgramMain),
		newProcessCommand(kernel.ServeCommand, withoutCode(kernel.ServeMain)), newProcessCommand(kernel.ProgramCommand, kernel.ProgramMain),
		newProcessCommand(mpirun.ProcessCommand, mpirun.ProcessMain), newProcessCommand(mpirun.ProxyCommand, mpirun.ProxyMain),
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

// newProcessCommand makes a hidden command that runs main, the main function of a process that
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

// mustUnshare reports whether the program must run itself again in new namespaces. There an
// ordinary user can create more of them, and the kernel removes them when that process ends.
func (o *conformOptions) mustUnshare() bool {
	return o.on == string(scenarios.NetNS) && !netns.IsUnshared()
}

// reportTime is how long the inner program may take to write a report after a signal.
const reportTime = 15 * time.Second

// runUnshared runs the command again, with args and --out=dir, in a process in new namespaces.
func runUnshared(cmd *cobra.Command, args []string, dir string) error {
	if err := netns.Available(); err != nil {
		hint := ""
		if cmd.Flags().Lookup("on") != nil {
			hint = "; --on sim needs none"
		}
		return fmt.Errorf("%s cannot run in network namespaces here: %w%s", cmd.Name(), err, hint)
	}
	return runAgain(cmd, "/proc/self/exe", args, dir, netns.StartUnshared)
}

// runAgain runs a program with the command line of cmd and --out=dir, and returns its exit code as
// an error. start starts the program.
func runAgain(cmd *cobra.Command, program string, args []string, dir string, start func(*exec.Cmd) error) error {
	inner := exec.CommandContext(cmd.Context(), program, append(repeatArgs(cmd, args), "--out="+dir)...)
	inner.Args[0] = os.Args[0]
	inner.Stdout, inner.Stderr = withoutEscapeFilter(cmd.OutOrStdout()), withoutEscapeFilter(cmd.ErrOrStderr())
	inner.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that signals come from this process only
	inner.Cancel = func() error { return inner.Process.Signal(syscall.SIGTERM) }
	inner.WaitDelay = reportTime
	if err := start(inner); err != nil {
		return err
	}
	err := inner.Wait()
	var exit *exec.ExitError
	var interrupted interruptedError
	switch {
	case errors.As(context.Cause(cmd.Context()), &interrupted):
		return exitError(128 + int(interrupted.Signal)) // the inner program reported it
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		return exitError(exit.ExitCode())
	}
	return err
}

// repeatArgs returns the words of the command line that runs cmd again: the names of the commands,
// the flags that were given but for --out, and args.
func repeatArgs(cmd *cobra.Command, args []string) []string {
	words := strings.Fields(cmd.CommandPath())[1:]
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Name == "out" {
			return
		}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			for _, v := range list.GetSlice() {
				words = append(words, "--"+f.Name+"="+v)
			}
			return
		}
		words = append(words, "--"+f.Name+"="+f.Value.String())
	})
	return append(words, args...)
}

// runWithMutants runs the command again, in a build of this program with all mutants, the defects
// that are changes of the source code.
func runWithMutants(cmd *cobra.Command, args []string, dir string) (err error) {
	tmp, err := os.MkdirTemp("", "fabrictest-mutants-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	all := defects.Mutants()
	fmt.Fprintf(cmd.ErrOrStderr(), "Building the devices with %d mutants...\n", len(all))
	program, err := mutant.Build(cmd.Context(), tmp, "cmd/fabrictest", all)
	if err != nil {
		return err
	}
	return runAgain(cmd, program, args, dir, (*exec.Cmd).Start)
}
