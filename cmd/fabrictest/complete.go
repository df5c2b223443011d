package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/conformance/judge"
	"github.com/fabrictest/fabrictest/lab/live"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/netns/topology"
	"github.com/fabrictest/fabrictest/scenarios"
)

// Completions for the shell: see 'fabrictest completion --help'. They must be fast,
// because the shell calls them while the user types.

type completer = func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective)

// withPrefix returns the words that begin with the typed text.
func withPrefix(typed string, words []cobra.Completion) []cobra.Completion {
	return slices.DeleteFunc(words, func(w cobra.Completion) bool { return !strings.HasPrefix(w, typed) })
}

// fixed completes one of the given words.
func fixed(words ...string) completer {
	return func(_ *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return withPrefix(typed, slices.Clone(words)), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeFrom completes one of the words that list returns within completionWait.
func completeFrom(list func(context.Context) ([]cobra.Completion, error)) completer {
	return func(cmd *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionWait)
		defer cancel()
		words, err := list(ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return withPrefix(typed, words), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeScenarios offers names with their titles, and files.
func completeScenarios(_ *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	shipped, err := scenarios.Builtin()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var words []cobra.Completion
	for _, s := range shipped {
		words = append(words, cobra.CompletionWithDesc(s.Name, s.Title))
	}
	return withPrefix(typed, words), cobra.ShellCompDirectiveDefault
}

var completeTags = completeFrom(func(context.Context) ([]cobra.Completion, error) {
	shipped, err := scenarios.Builtin()
	return scenarios.Tags(shipped), err
})

var completeDefects = completeFrom(func(context.Context) (words []cobra.Completion, _ error) {
	for _, d := range nics.AllDefects() {
		words = append(words, cobra.CompletionWithDesc(d.Name, d.Does))
	}
	return words, nil
})

// completeRuns offers as the first argument the runs in the user's cache, the latest first, and
// folders; as further arguments the scenarios.
func completeRuns(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return completeScenarios(cmd, args, typed)
	}
	words := []cobra.Completion{cobra.CompletionWithDesc("last", "the latest run")}
	if folder, err := runs.Root(); err == nil {
		ended := runs.EndedRuns(folder)
		slices.Reverse(ended)
		for _, r := range ended {
			words = append(words, folder+"/"+r)
		}
	}
	return withPrefix(typed, words), cobra.ShellCompDirectiveDefault
}

// completionWait is how long a lab may take to return its hosts.
const completionWait = time.Second

var completeLabs = completeFrom(live.List)

// labHosts returns the hosts of the lab of --lab; nil if it does not answer.
func labHosts(cmd *cobra.Command) []topology.Host {
	name, err := cmd.Flags().GetString("lab")
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionWait)
	defer cancel()
	info, err := live.Query(ctx, name)
	if err != nil {
		return nil
	}
	return info.Topology.Hosts
}

// completeHosts offers the hosts of a lab as the first argument. With --hosts, which makes a fabric
// of its own, and for further arguments the shell completes files.
func completeHosts(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 || cmd.Flags().Changed("hosts") {
		return nil, cobra.ShellCompDirectiveDefault
	}
	var words []cobra.Completion
	for _, h := range labHosts(cmd) {
		words = append(words, h.Name)
	}
	return withPrefix(typed, words), cobra.ShellCompDirectiveNoFileComp
}

// completeSet offers the lab's hosts and their NICs as first argument, then the changes of a link.
func completeSet(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		keys := scenarios.ImpairKeys()
		words := make([]cobra.Completion, 0, len(keys)+3)
		if len(args) == 1 {
			words = append(words, "up", "down", "clean")
		}
		for _, key := range keys {
			words = append(words, key+"=")
		}
		return withPrefix(typed, words), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
	var words []cobra.Completion
	for _, h := range labHosts(cmd) {
		words = append(words, h.Name)
		for _, n := range h.NICs {
			words = append(words, h.Name+"/"+n.Name)
		}
	}
	return withPrefix(typed, words), cobra.ShellCompDirectiveNoFileComp
}

// completeCases offers the IDs of cases, area by area.
var completeCases = completeFrom(func(context.Context) (words []cobra.Completion, _ error) {
	for _, s := range judge.Suites() {
		for i := range s.Cases {
			words = append(words, cobra.CompletionWithDesc(s.Cases[i].ID, s.Cases[i].Title))
		}
	}
	return words, nil
})

var completeLabels = completeFrom(func(context.Context) ([]cobra.Completion, error) {
	return judge.Labels(judge.Suites()), nil
})
