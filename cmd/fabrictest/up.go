package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fabrictest/fabrictest/lab/live"
	"github.com/fabrictest/fabrictest/netns/topology"
	"github.com/fabrictest/fabrictest/scenarios"
	"github.com/fabrictest/fabrictest/scenarios/workload"
)

// fabricFlags describe a fabric on the command line.
type fabricFlags struct {
	kind                         string
	hosts, rails, leaves, spines int
	mtu                          int
	like                         string
}

func (o *fabricFlags) flags(f *pflag.FlagSet) {
	f.StringVar(&o.kind, "fabric", "", "`SHAPE`: pair, star or fat-tree (default: a star, a pair if there are two hosts)")
	f.IntVar(&o.rails, "rails", 1, "NICs of each host, each on a subnet of its own")
	f.IntVar(&o.leaves, "leaves", 0, "leaf switches of a fat tree (default: one for every two hosts)")
	f.IntVar(&o.spines, "spines", 0, "spine switches of a fat tree (default: 2)")
	f.IntVar(&o.mtu, "mtu", 0, "largest IP packet (default: 9000)")
	f.StringVar(&o.like, "like", "", "take the fabric, and what packets meet on it, from `SCENARIO` instead")
}

// scenario is what a lab is built from.
func (o *fabricFlags) scenario(name string) (*scenarios.Scenario, error) {
	s := &scenarios.Scenario{
		Version: scenarios.FormatVersion, Name: name, Title: "A lab", Workload: workload.Config{Kind: workload.AllToAll},
		Fabric: scenarios.Fabric{
			Kind: scenarios.Kind(o.kind), Hosts: o.hosts, Rails: o.rails, Leaves: o.leaves, Spines: o.spines,
			Link: scenarios.Link{MTU: scenarios.Bytes(o.mtu)},
		},
	}
	if o.like != "" {
		sel := selection{patterns: []string{o.like}}
		found, err := sel.find()
		if err != nil {
			return nil, err
		}
		if len(found) != 1 {
			return nil, usagef("--like %s: %d scenarios match, name one", o.like, len(found))
		}
		s.Fabric, s.Impair, s.Seed = found[0].Fabric, found[0].Impair, found[0].Seed
		return s, nil
	}
	switch {
	case o.kind == "" && o.hosts == 2:
		s.Fabric.Kind = scenarios.Pair
	case o.kind == "":
		s.Fabric.Kind = scenarios.Star
	case s.Fabric.Kind == scenarios.FatTree:
		s.Fabric.Leaves, s.Fabric.Spines = max(o.leaves, 0), max(o.spines, 0)
		if o.leaves == 0 {
			s.Fabric.Leaves = max(2, (o.hosts+1)/2)
		}
		if o.spines == 0 {
			s.Fabric.Spines = 2
		}
	}
	text, err := s.Marshal()
	if err != nil {
		return nil, &usageError{err}
	}
	if s, err = scenarios.Parse(name+".yaml", text); err != nil {
		return nil, &usageError{err}
	}
	return s, nil
}

func newUpCommand(program string) *cobra.Command {
	var o fabricFlags
	name, direct := live.DefaultName, false
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Bring up a fabric to play with",
		Long: `Bring up a fabric of hosts in network namespaces, without privileges. It stays up
until 'fabrictest down', or until its process ends, and leaves nothing behind.

Run programs in its hosts with 'fabrictest exec', break its links with
'fabrictest set'.`,
		Example: `  fabrictest up --hosts 4
  fabrictest exec host0 -- ip -br address
  fabrictest set host1 loss=5% delay=1ms
  fabrictest down

  fabrictest up --name tree --fabric fat-tree --hosts 8 --spines 2
  fabrictest up --like incast-ecn`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := o.scenario(name)
			if err != nil {
				return err
			}
			if err := live.Up(live.Config{Name: name, Scenario: s, Direct: direct}); err != nil {
				return err
			}
			info, err := live.Ask(name)
			if err != nil {
				return err
			}
			return describe(cmd.OutOrStdout(), program, info)
		},
	}
	f := cmd.Flags()
	f.StringVar(&name, "name", name, "what to call the lab")
	f.IntVar(&o.hosts, "hosts", 2, "how many hosts")
	f.BoolVar(&direct, "direct", false, "cables of the kernel: faster, but they can only be cut, not impaired")
	o.flags(f)
	_ = cmd.RegisterFlagCompletionFunc("fabric", fixed("pair", "star", "fat-tree"))
	return cmd
}

// describe shows a lab.
func describe(w io.Writer, program string, info *live.Info) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, h := range info.Topology.Hosts {
		for i, n := range h.NICs {
			name := h.Name
			if i > 0 {
				name = ""
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", name, n.Name, n.Addr(false), n.Addr(true), farEnd(info.Topology, h.Name, n.Name))
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	lab := ""
	if info.Name != live.DefaultName {
		lab = " --lab " + info.Name
	}
	_, err := fmt.Fprintf(w, `
Lab %s is up, process %d.

    %s exec%s host0 -- bash
    %s set%s host1 loss=5%%
    %s down%s
`, info.Name, info.PID, program, lab, program, lab, program, strings.TrimPrefix(lab, " --lab"))
	return err
}

// farEnd is what a NIC is cabled to.
func farEnd(t *topology.Topology, host, nic string) string {
	p := topology.Port{Node: host, NIC: nic}
	c, ok := t.CableAt(p)
	if !ok {
		return ""
	}
	return "to " + c.Other(p).Node
}

func newDownCommand() *cobra.Command {
	all := false
	cmd := &cobra.Command{
		Use:   "down [LAB]",
		Short: "Take a fabric down, and everything that runs in it",
		Example: `  fabrictest down
  fabrictest down tree
  fabrictest down --all`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			names := append(args, live.DefaultName)[:1]
			if all {
				up, err := live.List()
				if err != nil {
					return err
				}
				names = up
			}
			var errs []error
			for _, n := range names {
				err := live.Down(n)
				if err == nil {
					_, err = fmt.Fprintf(cmd.OutOrStdout(), "Lab %s is down.\n", n)
				}
				errs = append(errs, err)
			}
			return errors.Join(errs...)
		},
		ValidArgsFunction: completeLabs,
	}
	cmd.Flags().BoolVar(&all, "all", false, "all labs of this user")
	return cmd
}

func newLabsCommand(program string) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:     "labs",
		Short:   "List the fabrics that are up",
		Example: "  fabrictest labs\n  fabrictest labs --json | jq -r '.[].topology.hosts[].name'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			names, err := live.List()
			if err != nil {
				return err
			}
			infos := make([]*live.Info, 0, len(names))
			for _, n := range names {
				info, err := live.Ask(n)
				if err != nil {
					continue // it went down meanwhile
				}
				infos = append(infos, info)
			}
			if asJSON {
				e := json.NewEncoder(cmd.OutOrStdout())
				e.SetIndent("", "  ")
				return e.Encode(infos)
			}
			if len(infos) == 0 {
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "No lab is up: start one with '%s up'.\n", program)
				return err
			}
			t := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			for _, i := range infos {
				fmt.Fprintf(t, "%s\t%d hosts\t%d programs\tprocess %d\n", i.Name, len(i.Topology.Hosts), i.Programs, i.PID)
			}
			return t.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func completeLabs(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	names, err := live.List()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
