package main

import (
	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/scenarios"
)

// Completions for the shell: see 'fabrictest completion --help'.

type completer = func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective)

// fixed completes one of the given words.
func fixed(words ...string) completer {
	return func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeScenarios offers names with their titles, and files.
func completeScenarios(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	shipped, err := scenarios.Builtin()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var words []cobra.Completion
	for _, s := range shipped {
		words = append(words, cobra.CompletionWithDesc(s.Name, s.Title))
	}
	return words, cobra.ShellCompDirectiveDefault
}

func completeTags(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	shipped, err := scenarios.Builtin()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return allTags(shipped), cobra.ShellCompDirectiveNoFileComp
}

func completeQuirks(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	all := lab.AllFlaws()
	words := make([]cobra.Completion, 0, len(all))
	for _, q := range all {
		words = append(words, cobra.CompletionWithDesc(q.Name, q.Does))
	}
	return words, cobra.ShellCompDirectiveNoFileComp
}
