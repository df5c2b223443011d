package main

import (
	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/judge"
	"github.com/fabrictest/fabrictest/lab/runner"
)

func newListCasesCommand() *cobra.Command {
	var choice conformance.Filter
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "cases [CASE...]",
		Short: "List the cases, and what each checks",
		RunE: func(cmd *cobra.Command, args []string) error {
			choice.IDs, choice.IncludeDangerous = args, true
			found, err := judge.FindCases(&choice)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), runner.Catalog().ListCases(found))
			}
			return judge.WriteCases(cmd.OutOrStdout(), found)
		},
		ValidArgsFunction: completeCases,
	}
	labelFlag(cmd, &choice.Labels)
	withoutFlag(cmd, &choice.ExcludeLabels, "")
	jsonFlag(cmd, &asJSON, printsJSON)
	return cmd
}

func newConformShowCommand(program string) *cobra.Command {
	return &cobra.Command{
		Use:   "show CASE...",
		Short: "Show what cases check, send and expect, and which defects they detect",
		Args:  atLeast(1, "name a case: 'fabrictest list cases' lists all"),
		RunE: func(cmd *cobra.Command, args []string) error {
			found, err := judge.FindCases(&conformance.Filter{IDs: args, IncludeDangerous: true})
			if err != nil {
				return err
			}
			return runner.Catalog().Describe(cmd.OutOrStdout(), found, program)
		},
		ValidArgsFunction: completeCases,
	}
}

func newConformCoverageCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "coverage [DOCUMENT...]",
		Short: "Show how much of the specifications the cases cover",
		RunE:  func(cmd *cobra.Command, args []string) error { return judge.WriteCoverage(cmd.OutOrStdout(), args) },
		ValidArgsFunction: func(_ *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return beginning(typed, judge.DocumentKeys()), cobra.ShellCompDirectiveNoFileComp
		},
	}
}
