package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/netns"
)

// exampleRemark matches the end of an example that is not an argument: a description after spaces,
// or a pipe or redirection of the shell.
var exampleRemark = regexp.MustCompile(`(   +\S.*| \| jq .*| > \S+)$`)

// examplesOf returns the command lines in the help of a command.
func examplesOf(cmd *cobra.Command) (lines []string) {
	for line := range strings.Lines(cmd.Example) {
		line = exampleRemark.ReplaceAllString(strings.TrimSpace(line), "")
		if rest, ok := strings.CutPrefix(line, "fabrictest "); ok {
			lines = append(lines, strings.TrimSpace(rest))
		}
	}
	return lines
}

// The commands in the examples of the help exist, and accept the flags and arguments.
func TestHelpExamplesParse(t *testing.T) {
	var check func(cmd *cobra.Command)
	found := 0
	check = func(cmd *cobra.Command) {
		for _, line := range examplesOf(cmd) {
			found++
			of, args, err := newRootCommand("fabrictest").Find(splitArgs(line))
			if err == nil {
				err = of.ParseFlags(args)
			}
			if err == nil {
				err = of.ValidateArgs(of.Flags().Args())
			}
			if err != nil {
				t.Errorf("fabrictest %s: %v", line, err)
			}
		}
		for _, sub := range cmd.Commands() {
			check(sub)
		}
	}
	check(newRootCommand("fabrictest"))
	if found < 50 {
		t.Errorf("only %d examples", found)
	}
}

var runExamples = flag.Bool("examples", false, "run the examples of the help, which takes half a minute")

// The examples of the help succeed, except those with a defect, which fail. .ci/docs runs it.
func TestHelpExamplesSucceed(t *testing.T) {
	t.Parallel() // most of the time it waits for processes
	if !*runExamples {
		t.Skip("without -examples")
	}
	noNamespaces := netns.Available()
	program, dir := testProgram(t), t.TempDir()
	env := append(os.Environ(), "XDG_CACHE_HOME="+t.TempDir())
	mine := "version: 1\nname: mine\ntitle: Mine\nfabric: {kind: pair}\nworkload: {kind: all-to-all, messages: 10}\n"
	must.Do(t, errors.Join(os.WriteFile(filepath.Join(dir, "mine.yaml"), []byte(mine), 0o666), os.WriteFile(filepath.Join(dir, "my-program"), []byte("#!/bin/sh\n"), 0o755)))
	run := func(args ...string) (int, string) {
		cmd := exec.Command(program, args...)
		cmd.Dir, cmd.Env = dir, env
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if err != nil && !asExit(err, &exit) {
			t.Error(err)
			return exitFailed, string(out)
		}
		if exit != nil {
			return exit.ExitCode(), string(out)
		}
		return exitOK, string(out)
	}
	writeRankProgramTo(t, dir, "swap")
	// The examples of replay use these runs.
	if code, out := run("run", "loss-5-percent", "pingpong", "--on", "sim", "--capture", "none", "--out", "saved"); code != exitOK {
		t.Fatal(out)
	}
	if code, out := run("explore", "--limit", "1us", "--out", "failures/ring.replay", "pingpong", "--iterations", "1"); code != exitFailed {
		t.Fatal(out)
	}
	runExamplesOf := func(command string) {
		cmd, _, err := newRootCommand("fabrictest").Find(strings.Fields(command))
		if err != nil {
			t.Error(err)
			return
		}
		for _, line := range examplesOf(cmd) {
			args, needs := adaptExample(t, line)
			if args == nil || needs && noNamespaces != nil {
				continue
			}
			want := exitOK
			if (strings.Contains(line, "--defect") || strings.Contains(line, "--as")) && !strings.Contains(line, "measure") {
				want = exitFailed // the defect is caught
			}
			if code, out := run(args...); code != want && !strings.HasPrefix(line, "doctor") {
				t.Errorf("fabrictest %s: exit code %d, want %d\n%s", line, code, want, out)
			}
		}
	}
	// Examples of conform are independent of the others, and some sleep for seconds. The others
	// depend on those before them.
	var background sync.WaitGroup
	background.Go(func() {
		for _, command := range []string{"conform", "conform show", "conform coverage", "conform measure"} {
			runExamplesOf(command)
		}
	})
	for _, command := range []string{"", "run", "list scenarios", "list cases", "list defects", "explore", "replay", "lab up", "lab exec", "lab set", "lab list", "lab down", "doctor", "version"} {
		runExamplesOf(command)
	}
	background.Wait()
	run("lab", "down", exampleLab()) // of the last example
}

func asExit(err error, exit **exec.ExitError) bool {
	e, ok := err.(*exec.ExitError)
	*exit = e
	return ok
}

func exampleLab() string { return fmt.Sprintf("example-%d", os.Getpid()) }

// adaptExample changes the arguments of an example so that it uses the lab of this test and takes
// seconds at most. It returns nil if the example is to be skipped.
func adaptExample(t *testing.T, line string) (args []string, needsNamespaces bool) {
	t.Helper()
	args = splitArgs(line)
	lab := exampleLab()
	command := args[0]
	if command == "lab" {
		command += " " + args[1]
	}
	switch command {
	case "run":
		if i := slices.Index(args, "--seeds"); i > 0 {
			args[i+1] = "3"
			return append(args, "pingpong"), false
		}
		needsNamespaces = slices.Contains(args, "netns")
		if len(args) == 1 || slices.Contains(args, "quick") || slices.Contains(args, "--json") {
			args = append(args, "pingpong") // in place of the standard set
		}
		if slices.Contains(args, "quick") {
			return nil, false // pingpong need not have this tag
		}
		if slices.Contains(args, "--provider") {
			args = append(args, "stream-write") // all providers can run it
		}
		if !slices.Contains(args, "--on") {
			args = append(args, "--on", "sim")
		}
		return append(args, "--capture", "none"), needsNamespaces
	case "conform":
		if len(args) == 1 || args[1] == "--check-cases" || args[1] == "--as" {
			args = append(args, "rc/psn") // in place of all cases
		}
		if i := slices.Index(args, "--schedules"); i > 0 {
			args[i+1] = "10"
		}
		if i := slices.Index(args, "--out"); i > 0 {
			args[i+1] = t.TempDir() // an earlier example may have written there
		}
		return args, slices.Contains(args, "netns")
	case "explore":
		i := slices.Index(args, "./my-ranks")
		if i < 0 {
			return args, false
		}
		if slices.Contains(args, "--time") {
			args[slices.Index(args, "--time")+1] = "1s"
		}
		return slices.Insert(args, i, "--runs", "100"), false
	case "replay":
		for i, a := range args {
			switch a {
			case "ring.replay":
				args[i] = "failures/ring.replay"
			case "out/":
				args[i] = "saved/"
			case "result.json":
				args[i] = "saved/result.json"
			}
		}
		return args, false
	case "lab up":
		_, _ = exec.Command(testProgram(t), "lab", "down", lab).CombinedOutput() // of an earlier example
		if i := slices.Index(args, "--lab"); i > 0 {
			args = slices.Delete(args, i, i+2)
		}
		return append(args, "--lab", lab), true
	case "lab exec":
		if slices.Contains(args, "-n") {
			return args, true
		}
		program := args[slices.Index(args, "--")+1]
		if _, err := exec.LookPath(program); err != nil {
			return nil, true
		}
		return append([]string{"lab", "exec", "--lab", lab}, args[2:]...), true
	case "lab set":
		if slices.Contains(args, "host0/rdma1") {
			return nil, true // it needs a fabric with two rails
		}
		args = append(args, "--lab", lab)
		if exec.Command(testProgram(t), "lab", "exec", "--lab", lab, "host0", "--", "true").Run() != nil {
			_ = exec.Command(testProgram(t), "lab", "up", "--lab", lab).Run() // its examples need a lab
		}
		return args, true
	case "lab down":
		if len(args) > 2 {
			return nil, true // it names labs of other users
		}
		return []string{"lab", "down", lab}, true
	}
	return args, false
}
