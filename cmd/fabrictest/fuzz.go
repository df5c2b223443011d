package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/fuzz"
	"github.com/fabrictest/fabrictest/internal/cli"
)

// newFuzzCommand returns the command `fabrictest fuzz`.
func newFuzzCommand() *cobra.Command {
	var o fuzzOptions
	cmd := &cobra.Command{
		Use:   "fuzz [TARGET...]",
		Short: "Run the fuzz targets of the source tree, one after the other",
		ValidArgsFunction: func(*cobra.Command, []string, string) (names []string, _ cobra.ShellCompDirective) {
			for _, t := range fuzz.Targets() {
				names = append(names, t.String())
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
	flags := cmd.Flags()
	flags.DurationVar(&o.total, "for", 10*time.Minute, "how long to fuzz, all targets together; those of whole stacks get a larger share")
	flags.DurationVar(&o.each, "each", 0, "how long to fuzz each target, instead of --for")
	flags.BoolVar(&o.list, "list", false, "list the targets and do nothing")
	flags.BoolVar(&o.json, "json", false, "print the result as JSON")
	cmd.MarkFlagsMutuallyExclusive("for", "each")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return runFuzz(cmd.Context(), &o, args, cmd.OutOrStdout(), cmd.ErrOrStderr())
	}
	return cmd
}

type fuzzOptions struct {
	total, each time.Duration
	list, json  bool
}

// runFuzz lists or fuzzes the targets that args select.
func runFuzz(ctx context.Context, o *fuzzOptions, args []string, out, status io.Writer) error {
	if o.total <= 0 || o.each < 0 {
		return cli.Errorf("--for and --each: give a time that is more than nothing")
	}
	tree, err := fuzz.FindTree()
	if err != nil {
		return err
	}
	targets, err := fuzz.Select(tree.Targets, args)
	if err != nil {
		return err
	}
	if o.list {
		for _, t := range targets {
			fmt.Fprintln(out, t)
		}
		return nil
	}
	shown := out
	if o.json {
		shown = io.Discard
	}
	terminal := terminalOf(status)
	if terminal != nil {
		status = terminal
	}
	table := fuzz.NewTable(shown, status, terminal != nil, targets)
	if err := tree.RunAll(ctx, targets, fuzz.Times(o.total, o.each, targets), table); err != nil {
		return err
	}
	if o.json {
		if err := printJSON(out, table.Summary()); err != nil {
			return err
		}
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case table.Failed():
		return errFailed
	}
	return nil
}
