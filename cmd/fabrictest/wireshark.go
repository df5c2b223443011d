package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/capture"
	"github.com/fabrictest/fabrictest/internal/cmdline"
)

// wiresharkOptions are those of `fabrictest wireshark`.
type wiresharkOptions struct {
	print bool // in the terminal, with tshark
}

func newWiresharkCommand() *cobra.Command {
	o := new(wiresharkOptions)
	cmd := &cobra.Command{
		Use:   "wireshark [RUN] [WHICH...] [-- OPTION...]",
		Short: "Open the captures of a run in Wireshark",
		Long: `Open the captures of a run in Wireshark, or print them with tshark.

RUN is the folder of a run of scenarios or cases, or a capture; without it, the
last run of scenarios in the user's cache. WHICH selects among its captures, by
words that must all be part of a capture's path: a scenario, sim or netns, a host,
the ID of a case. What follows -- is passed on.

Wireshark is told not to guess what protocol the payload of a message is, since its
guesses are wrong here: version 4.0 calls every SEND malformed that is too short to
be RPC over RDMA. The command that is run is printed. Where there is no display, or
no wireshark, tshark prints the packets; --print asks for that.

Exit codes: 0 it was opened, 1 there is no capture, or no Wireshark, 2 called
wrongly; otherwise that of Wireshark.`,
		Example: `  fabrictest wireshark                                 the last run
  fabrictest wireshark out/ loss-5-percent sim         one scenario of a run
  fabrictest wireshark out/ clean-ipv4 host0           what one host saw
  fabrictest wireshark conform/ rc/psn/12              the packets of a case
  fabrictest wireshark --print a.pcapng -- -Y infiniband.bth.opcode==17`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var more []string
			if n := cmd.ArgsLenAtDash(); n >= 0 {
				args, more = args[:n], args[n:]
			}
			return o.run(cmd, args, more)
		},
	}
	cmd.Flags().BoolVar(&o.print, "print", false, "print the packets with tshark, a line each")
	return cmd
}

func (o *wiresharkOptions) run(cmd *cobra.Command, args, more []string) error {
	files, err := findCaptures(args)
	if err != nil {
		return err
	}
	if len(files) > 1 {
		return cmdline.Errorf("%d captures: add words to select one of them:\n  %s", len(files), strings.Join(files, "\n  "))
	}
	command, err := o.command(cmd.Context(), files[0])
	if err != nil {
		return err
	}
	command = append(command, more...)
	words := make([]string, len(command))
	for i, w := range command {
		words[i] = cmdline.Quote(w)
	}
	fmt.Fprintln(cmd.ErrOrStderr(), strings.Join(words, " "))
	viewer := exec.CommandContext(cmd.Context(), command[0], command[1:]...)
	viewer.Stdin, viewer.Stdout, viewer.Stderr = os.Stdin, cmd.OutOrStdout(), cmd.ErrOrStderr()
	err = viewer.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() > 0 {
		return exitError(exit.ExitCode())
	}
	return err
}

// command is the command line that shows a capture.
func (o *wiresharkOptions) command(ctx context.Context, file string) ([]string, error) {
	tool, noTshark := exec.LookPath("tshark")
	gui, noGUI := exec.LookPath("wireshark")
	if noGUI != nil && noTshark != nil {
		return nil, capture.ErrNotInstalled
	}
	var options []string
	if noTshark == nil {
		options = capture.TsharkOptions(ctx, tool, file)
	} else {
		options = capture.DefaultTsharkOptions()
	}
	if o.print || noGUI != nil || !hasDisplay() {
		if noTshark != nil {
			return nil, fmt.Errorf("there is no display for %s, and tshark is not on PATH: install it (apt install tshark), or open %s elsewhere", gui, file)
		}
		return append([]string{tool, "-r", file}, options...), nil
	}
	return append(append([]string{gui}, options...), "-r", file), nil
}

// hasDisplay reports whether a window can be opened.
func hasDisplay() bool {
	return os.Getenv("DISPLAY") != "" || os.Getenv("WAYLAND_DISPLAY") != "" || runtime.GOOS == "darwin"
}

// findCaptures returns the captures that the arguments of the command name.
func findCaptures(args []string) ([]string, error) {
	run, words := "", args
	if len(args) > 0 {
		if _, err := os.Stat(args[0]); err == nil {
			run, words = args[0], args[1:]
		} else if len(args) == 1 && strings.ContainsRune(args[0], os.PathSeparator) && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	if run == "" {
		var err error
		if run, err = lastRun(); err != nil {
			return nil, err
		}
	}
	if info, err := os.Stat(run); err != nil {
		return nil, err
	} else if !info.IsDir() {
		return []string{run}, nil
	}
	all, err := capturesIn(run)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no capture: was it run with --capture none?", run)
	}
	chosen := slices.DeleteFunc(slices.Clone(all), func(file string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(file[len(run):], w) })
	})
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no capture in %s has %s in its path; there are:\n  %s", run, strings.Join(words, " and "), strings.Join(all, "\n  "))
	}
	return chosen, nil
}

// lastRun is the folder of the last run of scenarios in the user's cache.
func lastRun() (string, error) {
	root, err := runs.Root()
	if err != nil {
		return "", err
	}
	ended := runs.Ended(root)
	if len(ended) == 0 {
		return "", fmt.Errorf("no run in %s: name the folder of one", root)
	}
	return filepath.Join(root, ended[len(ended)-1]), nil
}

// capturesIn lists the captures below a folder.
func capturesIn(dir string) (files []string, err error) {
	err = filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() && isCapture(name) {
			files = append(files, name)
		}
		return err
	})
	return files, err
}

// isCapture reports whether a file is a capture, by its name.
func isCapture(name string) bool {
	name = strings.TrimSuffix(name, ".gz")
	return strings.HasSuffix(name, ".pcapng") || strings.HasSuffix(name, ".pcap")
}
