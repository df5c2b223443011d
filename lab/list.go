package lab

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/scenarios"
)

// ListedScenario is a scenario in a list in JSON.
type ListedScenario struct {
	Name        string           `json:"name"`
	Title       string           `json:"title"`
	Description string           `json:"description,omitempty"`
	Tags        []string         `json:"tags"`
	Tiers       []scenarios.Tier `json:"tiers"`
	Provider    string           `json:"provider"`        // whose NICs it has
	Unfit       string           `json:"unfit,omitempty"` // why it cannot run with them
}

// ListScenarios returns the scenarios for a list in JSON.
func ListScenarios(selected []scenarios.Selected) []ListedScenario {
	all := make([]ListedScenario, 0, len(selected))
	for _, s := range selected {
		all = append(all, ListedScenario{
			Name: s.Name, Title: s.Title, Description: s.Description, Tags: s.Tags, Tiers: tiersOf(s.Scenario),
			Provider: cmp.Or(s.NIC.Provider, nics.Default), Unfit: unfit(s.Scenario),
		})
	}
	return all
}

// WriteScenarios prints a line for each scenario, those that cannot run with their NICs
// last.
func WriteScenarios(w io.Writer, chosen []scenarios.Selected) error {
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
	_, err := io.WriteString(w, b.String())
	return err
}

func tiersOf(s *scenarios.Scenario) []scenarios.Tier {
	if len(s.Tiers) > 0 {
		return s.Tiers
	}
	return []scenarios.Tier{scenarios.Sim, scenarios.NetNS}
}

// unfit returns why a scenario can run with its NICs on none of its tiers.
func unfit(s *scenarios.Scenario) (why string) {
	for _, tier := range tiersOf(s) {
		if why = Incompatibility(s, tier); why == "" {
			return ""
		}
	}
	return why
}

func tagsOf(chosen []scenarios.Selected) []string {
	all := make([]*scenarios.Scenario, 0, len(chosen))
	for _, c := range chosen {
		all = append(all, c.Scenario)
	}
	return scenarios.Tags(all)
}
