package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/internal/cmdline"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/scenarios"
)

// listed is a scenario as --json lists it.
type listed struct {
	Name        string           `json:"name"`
	Title       string           `json:"title"`
	Description string           `json:"description,omitempty"`
	Tags        []string         `json:"tags"`
	Tiers       []scenarios.Tier `json:"tiers"`
	Provider    string           `json:"provider"`        // whose NICs it has
	Unfit       string           `json:"unfit,omitempty"` // why it makes no sense with them
}

func newListCommand() *cobra.Command {
	var sel scenarios.Selection
	var provider string
	var asJSON, schema bool
	cmd := &cobra.Command{
		Use:   "list [SCENARIO...]",
		Short: "List the scenarios",
		Long: `List the scenarios that ship with fabrictest, all of them or those that the
patterns and tags select. --provider shows which of them make sense with the NICs of
that name, and why the others do not. --schema prints the JSON schema of their
format, for whoever writes one: editors complete and check with it.`,
		Example: `  fabrictest list
  fabrictest list --tag loss
  fabrictest list --provider softiwarp
  fabrictest list 'flap-*' --json
  fabrictest list --schema > scenario.schema.json`,
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
				return listJSON(cmd, chosen)
			}
			return listText(cmd, chosen)
		},
		ValidArgsFunction: completeScenarios,
	}
	f := cmd.Flags()
	f.StringSliceVar(&sel.Tags, "tag", nil, "only scenarios with this `TAG`; may be repeated")
	f.StringVar(&provider, "provider", "", "with the NICs of `NAME`: "+cmdline.Choices(nics.Names()))
	f.BoolVar(&asJSON, "json", false, "print JSON")
	f.BoolVar(&schema, "schema", false, "print the JSON schema of scenario files")
	_ = cmd.RegisterFlagCompletionFunc("tag", completeTags)
	_ = cmd.RegisterFlagCompletionFunc("provider", fixed(nics.Names()...))
	return cmd
}

func tiersOf(s *scenarios.Scenario) []scenarios.Tier {
	if len(s.Tiers) > 0 {
		return s.Tiers
	}
	return []scenarios.Tier{scenarios.Sim, scenarios.NetNS}
}

// unfit is why a scenario makes no sense with its NICs: on any tier that it may run
// on.
func unfit(s *scenarios.Scenario) (why string) {
	for _, tier := range tiersOf(s) {
		if why = lab.Incompatibility(s, tier); why == "" {
			return ""
		}
	}
	return why
}

func listJSON(cmd *cobra.Command, chosen []scenarios.Selected) error {
	all := make([]listed, 0, len(chosen))
	for _, s := range chosen {
		all = append(all, listed{
			Name: s.Name, Title: s.Title, Description: s.Description, Tags: s.Tags, Tiers: tiersOf(s.Scenario),
			Provider: cmp.Or(s.NIC.Provider, nics.Default), Unfit: unfit(s.Scenario),
		})
	}
	return printJSON(cmd.OutOrStdout(), all)
}

func listText(cmd *cobra.Command, chosen []scenarios.Selected) error {
	width := 0
	for _, s := range chosen {
		width = max(width, len(s.Name))
	}
	var b, not strings.Builder
	fit := 0
	for _, s := range chosen {
		if why := unfit(s.Scenario); why != "" {
			fmt.Fprintf(&not, "%-*s  %s\n", width, s.Name, why)
			continue
		}
		fit++
		only := ""
		if len(s.Tiers) == 1 {
			only = fmt.Sprintf(" (%s only)", s.Tiers[0])
		}
		fmt.Fprintf(&b, "%-*s  %s%s\n", width, s.Name, s.Title, only)
	}
	fmt.Fprintf(&b, "\n%d scenarios. Tags: %s.\n", fit, strings.Join(tagsOf(chosen), ", "))
	if not.Len() > 0 {
		fmt.Fprintf(&b, "\n%d make no sense with these NICs:\n%s", len(chosen)-fit, not.String())
	}
	_, err := cmd.OutOrStdout().Write([]byte(b.String()))
	return err
}

func tagsOf(chosen []scenarios.Selected) []string {
	all := make([]*scenarios.Scenario, 0, len(chosen))
	for _, c := range chosen {
		all = append(all, c.Scenario)
	}
	return scenarios.Tags(all)
}
