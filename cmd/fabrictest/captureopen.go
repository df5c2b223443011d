package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/capture"
	"github.com/fabrictest/fabrictest/internal/cmdline"
)

// captureOpenOptions are those of `fabrictest capture open`.
type captureOpenOptions struct {
	print bool // in the terminal, with tshark
}

func newCaptureOpenCommand() *cobra.Command {
	o := new(captureOpenOptions)
	cmd := &cobra.Command{
		Use:   "open [RUN] [WHICH...] [-- OPTION...]",
		Short: "Open the captures of a run in Wireshark",
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

// run opens the capture that args select in Wireshark, or prints it with tshark.
func (o *captureOpenOptions) run(cmd *cobra.Command, args, more []string) error {
	run, words, err := splitRun(args)
	if err != nil {
		return err
	}
	files, err := capture.Find(run, words)
	if err != nil {
		return err
	}
	if len(files) > 1 {
		return cmdline.Errorf("%d captures: add words to select one of them:\n  %s", len(files), strings.Join(files, "\n  "))
	}
	command, err := capture.ViewerCommand(cmd.Context(), files[0], o.print)
	if err != nil {
		return err
	}
	command = append(command, more...)
	fmt.Fprintln(cmd.ErrOrStderr(), cmdline.Join(command))
	viewer := exec.CommandContext(cmd.Context(), command[0], command[1:]...)
	viewer.Stdin, viewer.Stdout, viewer.Stderr = os.Stdin, cmd.OutOrStdout(), cmd.ErrOrStderr()
	err = viewer.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() > 0 {
		return exitError(exit.ExitCode())
	}
	return err
}

// splitRun separates the folder or capture at the beginning of the arguments from the
// words after it. Without one, it is the last run of scenarios in the user's cache.
func splitRun(args []string) (run string, words []string, err error) {
	if len(args) > 0 {
		if _, err := os.Stat(args[0]); err == nil {
			return args[0], args[1:], nil
		} else if len(args) == 1 && strings.ContainsRune(args[0], os.PathSeparator) && !errors.Is(err, fs.ErrNotExist) {
			return "", nil, err
		}
	}
	run, err = runs.Last()
	return run, args, err
}
