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
	"github.com/fabrictest/fabrictest/internal/cli"
)

// newCaptureShowCommand returns the command `fabrictest capture show`, which prints the
// decoded packets of a capture.
func newCaptureShowCommand() *cobra.Command {
	var opts capture.PrintOptions
	var qps, psns []string
	cmd := &cobra.Command{
		Use:   "show FILE...",
		Short: "Decode the RoCEv2 and iWARP packets of a capture, a line per packet",
		Args:  atLeast(1, "name a capture to decode, or - for the standard input"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := opts.Filter.Select(qps, psns); err != nil {
				return err
			}
			if opts.Limit < 0 {
				return cli.Errorf("-n %d: a number of packets is not negative", opts.Limit)
			}
			out, unfiltered := cmd.OutOrStdout(), withoutEscapeFilter(cmd.OutOrStdout())
			opts.Width, opts.Colour = capture.TerminalProperties(unfiltered)
			if opts.Colour {
				out = unfiltered // the filter would escape the colours
			}
			ok, err := capture.PrintFiles(cmd.Context(), capture.Streams{In: cmd.InOrStdin(), Out: out, Err: cmd.ErrOrStderr()}, args, opts)
			if err == nil && !ok {
				return errFailed
			}
			return err
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&opts.Verbose, "verbose", "v", false, "print all headers, field by field")
	f.BoolVarP(&opts.Hex, "hex", "x", false, "print the bytes of each packet")
	f.BoolVar(&opts.JSON, "json", false, "print a JSON object per packet; with -v and -x also headers and bytes")
	f.BoolVar(&opts.Stats, "stats", false, "print counts by message and by flow at the end")
	f.BoolVarP(&opts.StatsOnly, "quiet", "q", false, "print the counts only")
	f.BoolVar(&opts.Delta, "delta", false, "print times since the previous packet, not since the first")
	f.IntVarP(&opts.Limit, "count", "n", 0, "stop after `N` selected packets")
	f.StringSliceVar(&qps, "qp", nil, "only packets to queue pair `N`, such as 17 or 0x11")
	f.StringSliceVar(&psns, "psn", nil, "only PSN `N`, or those from A to B: A-B")
	f.StringSliceVar(&opts.Filter.Ops, "op", nil, "only messages whose name is like `GLOB`, such as 'RC SEND*'")
	f.StringSliceVar(&opts.Filter.Hosts, "host", nil, "only packets from or to `ADDR`: an address, a prefix, or a host's name")
	f.BoolVar(&opts.Filter.OnlyMarked, "problems", false, "only packets that are marked")
	return cmd
}

// newCaptureOpenCommand returns the command 'fabrictest capture open'.
func newCaptureOpenCommand() *cobra.Command {
	printPackets := false
	cmd := &cobra.Command{
		Use:   "open [RUN] [WHICH...] [-- OPTION...]",
		Short: "Open the captures of a run in Wireshark",
		RunE: func(cmd *cobra.Command, args []string) error {
			var options []string
			if n := cmd.ArgsLenAtDash(); n >= 0 {
				args, options = args[:n], args[n:]
			}
			return openCapture(cmd, args, options, printPackets)
		},
	}
	cmd.Flags().BoolVar(&printPackets, "print", false, "print the packets with tshark, a line each")
	return cmd
}

// openCapture opens the capture that args select in Wireshark, or prints it with tshark. options
// are further arguments of that program.
func openCapture(cmd *cobra.Command, args, options []string, printPackets bool) error {
	run, words, err := splitRun(args)
	if err != nil {
		return err
	}
	files, err := capture.Find(run, words)
	if err != nil {
		return err
	}
	if len(files) > 1 {
		return cli.Errorf("%d captures: add words to select one of them:\n  %s", len(files), strings.Join(files, "\n  "))
	}
	command, err := capture.ViewerCommand(cmd.Context(), files[0], printPackets)
	if err != nil {
		return err
	}
	command = append(command, options...)
	fmt.Fprintln(cmd.ErrOrStderr(), cli.Join(command))
	viewer := exec.CommandContext(cmd.Context(), command[0], command[1:]...)
	viewer.Stdin, viewer.Stdout, viewer.Stderr = os.Stdin, cmd.OutOrStdout(), cmd.ErrOrStderr()
	err = viewer.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() > 0 {
		return exitError(exit.ExitCode())
	}
	return err
}

// splitRun returns the first argument as run if it is an existing folder or capture, and the others
// as words. Otherwise run is the last run of scenarios in the user's cache, and all are words.
func splitRun(args []string) (run string, words []string, err error) {
	if len(args) > 0 {
		if _, err := os.Stat(args[0]); err == nil {
			return args[0], args[1:], nil
		} else if len(args) == 1 && strings.ContainsRune(args[0], os.PathSeparator) && !errors.Is(err, fs.ErrNotExist) {
			return "", nil, err // the path of a run that cannot be read
		}
	}
	run, err = runs.Last()
	return run, args, err
}
