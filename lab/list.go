package lab

import (
	"cmp"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/netns"
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
			Provider: cmp.Or(s.NIC.Provider, nics.Default), Unfit: whyIncompatible(s.Scenario),
		})
	}
	return all
}

// WriteScenarios prints a line for each scenario. Scenarios that cannot run with the NICs of their
// provider come last, with the reason.
func WriteScenarios(w io.Writer, selected []scenarios.Selected) error {
	width, all := 0, make([]*scenarios.Scenario, 0, len(selected))
	for _, s := range selected {
		width, all = max(width, len(s.Name)), append(all, s.Scenario)
	}
	var b, incompatible strings.Builder
	compatible := 0
	for _, s := range selected {
		if why := whyIncompatible(s.Scenario); why != "" {
			fmt.Fprintf(&incompatible, "%-*s  %s\n", width, s.Name, why)
			continue
		}
		compatible++
		only := ""
		if len(s.Tiers) == 1 {
			only = fmt.Sprintf(" (%s only)", s.Tiers[0])
		}
		fmt.Fprintf(&b, "%-*s  %s%s\n", width, s.Name, s.Title, only)
	}
	fmt.Fprintf(&b, "\n%d scenarios. Tags: %s.\n", compatible, strings.Join(scenarios.Tags(all), ", "))
	if incompatible.Len() > 0 {
		fmt.Fprintf(&b, "\n%d make no sense with these NICs:\n%s", len(selected)-compatible, incompatible.String())
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// tiersOf returns the tiers (sim, netns) on which a scenario runs; both if it names none.
func tiersOf(s *scenarios.Scenario) []scenarios.Tier {
	if len(s.Tiers) > 0 {
		return s.Tiers
	}
	return []scenarios.Tier{scenarios.Sim, scenarios.NetNS}
}

// whyIncompatible returns why a scenario with its NICs can run on none of its tiers (simulation,
// network namespaces): the reason for the last tier. It returns "" if it can run on one.
func whyIncompatible(s *scenarios.Scenario) (why string) {
	for _, tier := range tiersOf(s) {
		if why = Incompatibility(s, tier); why == "" {
			return ""
		}
	}
	return why
}

// ProgramCapabilities returns which optional programs, tshark and a browser, are on PATH. Either
// browser will do.
func ProgramCapabilities() (found []netns.Capability) {
	for _, p := range []struct {
		names         []string
		purpose, cure string
	}{
		{[]string{"tshark"}, "a second opinion on captures", "Debian: apt install tshark"},
		{[]string{"chromium", "google-chrome"}, "the tests of the report page", "Debian: apt install chromium"},
	} {
		c := netns.Capability{Name: p.names[0], For: p.purpose, State: netns.No, Reason: "it is not on PATH", Cure: p.cure}
		for _, name := range p.names {
			if _, err := exec.LookPath(name); err == nil {
				c.State, c.Reason, c.Cure = netns.Yes, "", ""
			}
		}
		found = append(found, c)
	}
	return found
}

// WriteCapabilities prints a line for each capability, with the reason and the remedy for those
// that are missing, in colour for a terminal.
func WriteCapabilities(w io.Writer, found []netns.Capability, coloured bool) error {
	formatState := stateText(coloured)
	width := 0
	for _, c := range found {
		width = max(width, len(c.Name))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %-*s  %s\n", formatState(netns.Yes), width, "simulation", "every scenario, on any machine")
	for _, c := range found {
		fmt.Fprintf(&b, "%s  %-*s  %s\n", formatState(c.State), width, c.Name, c.For)
		indent := strings.Repeat(" ", len("limited")+2+width+2)
		if c.Reason != "" {
			fmt.Fprintf(&b, "%s%s\n", indent, cli.PrintableLine(c.Reason))
		}
		if c.Cure != "" {
			fmt.Fprintf(&b, "%sto have it: %s\n", indent, cli.PrintableLine(c.Cure))
		}
	}
	if why := netns.Available(); why != nil {
		fmt.Fprintf(&b, "\nScenarios run in simulation only: %v\n", why)
	} else {
		b.WriteString("\nScenarios run in simulation and in network namespaces.\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// stateText returns a function that pads a state (whether a feature works on this machine), and
// colours it with ANSI codes if coloured.
func stateText(coloured bool) func(netns.State) string {
	plain := func(s netns.State) string { return fmt.Sprintf("%-*s", len("limited"), s) }
	if !coloured {
		return plain
	}
	const red, green, yellow = "31", "32", "33"
	codes := map[netns.State]string{netns.Yes: green, netns.No: red, netns.Limited: yellow}
	return func(s netns.State) string { return "\x1b[" + codes[s] + "m" + plain(s) + "\x1b[0m" }
}

// portEnd is an end of a cable. It has the index of its port or, if it has none in Plan.Ports, that
// of the port at the other end, with reversed set: packets out of this end come in there.
type portEnd struct {
	port     int
	reversed bool
}

// selectPorts returns the cable ends that the patterns match, ordered by the index of their port.
// An end at a switch may have no port of its own: the result then has the port at the other end,
// with reversed set. Without patterns it returns the ports of all hosts. key is the key of the
// patterns in the scenario, for errors.
func (p *Plan) selectPorts(key string, patterns []string) (picked []portEnd, err error) {
	if len(patterns) == 0 {
		for i := range p.Ports {
			if p.Ports[i].Host >= 0 {
				picked = append(picked, portEnd{port: i})
			}
		}
		return picked, nil
	}
	for i, pattern := range patterns {
		ports, err := p.Topology.Match(pattern)
		if err != nil {
			return nil, p.Scenario.Errorf(fmt.Sprintf("%s[%d]", key, i), "%w", err)
		}
		for _, end := range ports {
			if at := p.ends[end.String()]; !slices.Contains(picked, at) {
				picked = append(picked, at)
			}
		}
	}
	slices.SortFunc(picked, func(a, b portEnd) int { return cmp.Compare(a.port, b.port) })
	return picked, nil
}

// selectPortIndexes returns the indices of the ports of the cables that have an end (NIC or switch)
// which a pattern matches, each once. key is the setting, for errors.
func (p *Plan) selectPortIndexes(key string, patterns []string) ([]int, error) {
	picked, err := p.selectPorts(key, patterns)
	var ports []int
	for _, at := range picked {
		if !slices.Contains(ports, at.port) {
			ports = append(ports, at.port)
		}
	}
	return ports, err
}

// selectHosts returns the indices of the matching hosts.
func (p *Plan) selectHosts(key string, patterns []string) (hosts []int, err error) {
	ports, err := p.selectPortIndexes(key, patterns)
	for _, k := range ports {
		switch h := p.Ports[k].Host; {
		case h < 0:
			return nil, p.Scenario.Errorf(key, "%s is not a host", p.Ports[k].Node)
		case !slices.Contains(hosts, h):
			hosts = append(hosts, h)
		}
	}
	return hosts, err
}
