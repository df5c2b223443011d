package main

import (
	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/internal/cmdline"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/scenarios"
)

func newListScenariosCommand() *cobra.Command {
	var sel scenarios.Selection
	var provider string
	var asJSON, schema bool
	cmd := &cobra.Command{
		Use:   "scenarios [SCENARIO...]",
		Short: "List the scenarios",
		RunE: func(cmd *cobra.Command, args []string) error {
			if schema {
				_, err := cmd.OutOrStdout().Write(scenarios.Schema())
				return err
			}
			sel.Patterns = args
			if len(args) == 0 && len(sel.Tags) == 0 {
				sel.Patterns = []string{"*"}
			}
			chosen, err := sel.Find()
			if err != nil {
				return err
			}
			if provider != "" {
				if _, err := nics.Find(provider); err != nil {
					return cmdline.Errorf("--provider: %w", err)
				}
				for i := range chosen {
					chosen[i].Scenario = lab.WithProvider(chosen[i].Scenario, provider)
				}
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), lab.ListScenarios(chosen))
			}
			return lab.WriteScenarios(cmd.OutOrStdout(), chosen)
		},
		ValidArgsFunction: completeScenarios,
	}
	tagFlag(cmd, &sel.Tags)
	providerFlag(cmd, &provider, "", "with the NICs of", "")
	jsonFlag(cmd, &asJSON, printsJSON)
	cmd.Flags().BoolVar(&schema, "schema", false, "print the JSON schema of scenario files")
	return cmd
}
