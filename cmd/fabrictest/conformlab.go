package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/lab/bench"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/scenarios"
)

// benches is a lab that is to be closed.
type benches interface {
	conformance.Lab
	io.Closer
}

// What a case may take that is told how many schedules to explore, before it counts as
// one that comes to no end: some for itself, and some for each schedule, of which the
// longest has a few thousand events and waits for a few timers.
const (
	caseEvents, scheduleEvents     = 20_000_000, 50_000
	caseTime, scheduleTime         = 2 * time.Hour, 10 * time.Second
	realCaseTime, realScheduleTime = 2 * time.Minute, 5 * time.Second
)

// open opens the lab that a subject is judged in.
func (o *conformOptions) open(s *subject) (benches, error) {
	if o.on == string(scenarios.Sim) {
		opt := bench.SimOptions{Restrictions: s.claims()}
		if o.schedules > 0 {
			opt.MaxEvents, opt.MaxTime = caseEvents+uint64(o.schedules)*scheduleEvents, caseTime+time.Duration(o.schedules)*scheduleTime
		}
		return bench.InSimulation(s.provider, opt), nil
	}
	opt := bench.NamespaceOptions{Parallel: o.caseWorkers(), Restrictions: s.claims()}
	if o.schedules > 0 {
		opt.MaxTime = realCaseTime + time.Duration(o.schedules)*realScheduleTime
	}
	return bench.InNamespaces(s.provider, opt)
}

// mustEnclose reports whether the program has to start itself in namespaces of its
// own, where an ordinary user can make more of them, and from where nothing is left
// whatever becomes of it.
func (o *conformOptions) mustEnclose() bool {
	return o.on == string(scenarios.NetNS) && !netns.IsUnshared()
}

// enclosureGrace is what the program has to write a report once it is asked to end.
const enclosureGrace = 15 * time.Second

// enclosed runs the command in namespaces of its own, with the same arguments, into
// a folder that is there already.
func enclosed(cmd *cobra.Command, args []string, dir string) error {
	if err := netns.Available(); err != nil {
		return fmt.Errorf("cases cannot be run in network namespaces here: %w; --on sim needs none", err)
	}
	return runAgain(cmd, "/proc/self/exe", args, dir, netns.StartUnshared)
}

// runAgain runs a program with the command line of a command and a folder for results,
// and returns its exit code as an error.
func runAgain(cmd *cobra.Command, program string, args []string, dir string, start func(*exec.Cmd) error) error {
	// It is signalled by us alone, so that Ctrl-C does not reach it twice.
	inner := exec.CommandContext(cmd.Context(), program, append(repeated(cmd, args), "--out="+dir)...)
	inner.Args[0] = os.Args[0]
	inner.Stdout, inner.Stderr = uncleaned(cmd.OutOrStdout()), uncleaned(cmd.ErrOrStderr())
	inner.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	inner.Cancel = func() error { return inner.Process.Signal(syscall.SIGTERM) }
	inner.WaitDelay = enclosureGrace
	if err := start(inner); err != nil {
		return err
	}
	err := inner.Wait()
	var exit *exec.ExitError
	var interrupted interruptedError
	switch {
	case errors.As(context.Cause(cmd.Context()), &interrupted):
		return exitError(128 + int(interrupted.Signal)) // of which it has told
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		return exitError(exit.ExitCode())
	}
	return err
}

// repeated is the command line of a command as it was understood, but for --out.
func repeated(cmd *cobra.Command, args []string) []string {
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
