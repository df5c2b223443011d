package main

import (
	"context"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/fuzz"
	"github.com/fabrictest/fabrictest/internal/cmdline"
)

// newFuzzCommand is `fabrictest fuzz`.
func newFuzzCommand() *cobra.Command {
	var o fuzzOptions
	cmd := &cobra.Command{
		Use:   "fuzz [TARGET...]",
		Short: "Run the fuzz targets of the source tree, one after the other",
		Long: `Run fuzz targets, one after the other: all that fuzz/targets.txt lists, or those
that are named. A target is named by its package, its function or both, and
patterns will do: "emu/softroce/engine", "FuzzVerbs", "fuzz.*".

Targets look for broken promises, not only for crashes (docs/fuzzing.md). Inputs
that reach new code are kept in the cache of the go command, and are where the
next run begins. An input that fails is written below the package's
testdata/fuzz, with the command that repeats it, and the others go on.

It needs a clone of the repository around the current folder, and the go command.
The exit code is 1 if anything failed. Ctrl-C ends it, with the table of what was
done.`,
		Example: `  fabrictest fuzz --list                    what there is
  fabrictest fuzz --for 10m                 all of it, in ten minutes
  fabrictest fuzz FuzzVerbs --for 1m        one target
  fabrictest fuzz 'emu/*' --each 30s        those below a folder, half a minute each
  fabrictest fuzz --for 10m --json > fuzz.json`,
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

func runFuzz(ctx context.Context, o *fuzzOptions, args []string, out, status io.Writer) error {
	if o.total <= 0 || o.each < 0 {
		return cmdline.Errorf("a time to fuzz must be more than nothing")
	}
	tree, err := findFuzzTree()
	if err != nil {
		return err
	}
	targets, err := selectTargets(tree.targets, args)
	if err != nil {
		return err
	}
	if o.list {
		for _, t := range targets {
			fmt.Fprintln(out, t)
		}
		return nil
	}
	if err := tree.findGo(ctx); err != nil {
		return err
	}
	defer tree.clean()
	times := fuzzTimes(o, targets)
	shown := out
	if o.json {
		shown = io.Discard
	}
	table := newFuzzTable(shown, status, targets)
	for i, t := range targets {
		if ctx.Err() != nil {
			break
		}
		table.done(tree.fuzz(ctx, t, times[i], table.progress))
	}
	table.finish()
	if o.json {
		if err := printJSON(out, table.result()); err != nil {
			return err
		}
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case table.failed():
		return errFailed
	}
	return nil
}

// wholeStackShares is how much more of the time a target of whole stacks gets: each
// of its inputs takes that much longer than a codec's.
const wholeStackShares = 4

// fuzzTimes is how long each target is fuzzed.
func fuzzTimes(o *fuzzOptions, targets []fuzz.Target) []time.Duration {
	shares := make([]int, len(targets))
	sum := 0
	for i, t := range targets {
		if shares[i] = 1; t.Package == "./fuzz" {
			shares[i] = wholeStackShares
		}
		sum += shares[i]
	}
	times := make([]time.Duration, len(targets))
	for i := range times {
		if times[i] = o.each; o.each == 0 {
			times[i] = max(o.total*time.Duration(shares[i])/time.Duration(sum), time.Second).Round(time.Millisecond)
		}
	}
	return times
}

// selectTargets returns those that are named, in the order of the list; all if
// none are.
func selectTargets(all []fuzz.Target, args []string) (some []fuzz.Target, err error) {
	if len(args) == 0 {
		return all, nil
	}
	used := make([]bool, len(args))
	for _, t := range all {
		wanted := false
		for i, arg := range args {
			if matchTarget(t, arg) {
				wanted, used[i] = true, true
			}
		}
		if wanted {
			some = append(some, t)
		}
	}
	for i, arg := range args {
		if !used[i] {
			var names []string
			for _, t := range all {
				names = append(names, t.String(), t.Name)
			}
			hint := "'fabrictest fuzz --list' shows them"
			if like := cmdline.Similar(arg, names); len(like) > 0 {
				hint = fmt.Sprintf("did you mean %s?", strings.Join(like, " or "))
			}
			return nil, cmdline.Errorf("no fuzz target %q: %s", arg, hint)
		}
	}
	return some, nil
}

// matchTarget reports whether a target is meant: by its package, its function or
// both, or by a pattern of either. A pattern that ends in a star is of all below.
func matchTarget(t fuzz.Target, arg string) bool {
	arg = strings.TrimSuffix(strings.TrimPrefix(arg, "./"), "/...")
	pkg := strings.TrimPrefix(t.Package, "./")
	if below, ok := strings.CutSuffix(arg, "/*"); ok && strings.HasPrefix(pkg, below+"/") {
		return true
	}
	for _, name := range []string{pkg, t.Name, t.String()} {
		if ok, err := path.Match(arg, name); ok && err == nil {
			return true
		}
	}
	return strings.HasPrefix(pkg, arg+"/")
}
