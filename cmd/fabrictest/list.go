package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/scenarios"
)

// listed is a scenario as --json lists it.
type listed struct {
	Name        string           `json:"name"`
	Title       string           `json:"title"`
	Description string           `json:"description,omitempty"`
	Tags        []string         `json:"tags"`
	Tiers       []scenarios.Tier `json:"tiers"`
}

func newListCommand() *cobra.Command {
	var sel selection
	var asJSON, schema bool
	cmd := &cobra.Command{
		Use:   "list [SCENARIO...]",
		Short: "List the scenarios, and what each shows",
		Long: `List the scenarios that ship with fabrictest, all of them or those that the
patterns and tags select. --schema prints the JSON schema of their format, for
whoever writes one: editors complete and check with it.`,
		Example: `  fabrictest list
  fabrictest list --tag loss
  fabrictest list 'flap-*' --json
  fabrictest list --schema > scenario.schema.json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if schema {
				_, err := cmd.OutOrStdout().Write(scenarios.Schema())
				return err
			}
			sel.patterns = args
			if len(args) == 0 && len(sel.tags) == 0 {
				sel.patterns = []string{"*"}
			}
			chosen, err := sel.find()
			if err != nil {
				return err
			}
			if asJSON {
				return listJSON(cmd, chosen)
			}
			return listText(cmd, chosen)
		},
		ValidArgsFunction: completeScenarios,
	}
	f := cmd.Flags()
	f.StringSliceVar(&sel.tags, "tag", nil, "only scenarios with this `TAG`; may be repeated")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	f.BoolVar(&schema, "schema", false, "print the JSON schema of scenario files")
	_ = cmd.RegisterFlagCompletionFunc("tag", completeTags)
	return cmd
}

func tiersOf(s *scenarios.Scenario) []scenarios.Tier {
	if len(s.Tiers) > 0 {
		return s.Tiers
	}
	return []scenarios.Tier{scenarios.Sim, scenarios.NetNS}
}

func listJSON(cmd *cobra.Command, chosen []choice) error {
	all := make([]listed, 0, len(chosen))
	for _, s := range chosen {
		all = append(all, listed{s.Name, s.Title, s.Description, s.Tags, tiersOf(s.Scenario)})
	}
	e := json.NewEncoder(cmd.OutOrStdout())
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(all)
}

func listText(cmd *cobra.Command, chosen []choice) error {
	width := 0
	for _, s := range chosen {
		width = max(width, len(s.Name))
	}
	var b strings.Builder
	for _, s := range chosen {
		only := ""
		if len(s.Tiers) == 1 {
			only = fmt.Sprintf(" (%s only)", s.Tiers[0])
		}
		fmt.Fprintf(&b, "%-*s  %s%s\n", width, s.Name, s.Title, only)
	}
	fmt.Fprintf(&b, "\n%d scenarios. Tags: %s.\n", len(chosen), strings.Join(tagsOf(chosen), ", "))
	_, err := cmd.OutOrStdout().Write([]byte(b.String()))
	return err
}

func tagsOf(chosen []choice) []string {
	all := make([]*scenarios.Scenario, 0, len(chosen))
	for _, c := range chosen {
		all = append(all, c.Scenario)
	}
	return allTags(all)
}
