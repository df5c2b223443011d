package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fabrictest/fabrictest/internal/cmdline"
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
	given                        func(flag string) bool // on the command line
}

func (o *fabricFlags) flags(f *pflag.FlagSet) {
	o.given = f.Changed
	f.StringVar(&o.kind, "fabric", "", "`SHAPE`: pair, star or fat-tree (default: a star, a pair if there are two hosts)")
	f.IntVar(&o.rails, "rails", 1, "NICs of each host, each on a subnet of its own")
	f.IntVar(&o.leaves, "leaves", 0, "leaf switches of a fat tree (default: one for every two hosts)")
	f.IntVar(&o.spines, "spines", 0, "spine switches of a fat tree (default: 2)")
	f.IntVar(&o.mtu, "mtu", 9000, "largest IP packet")
	f.StringVar(&o.like, "like", "", "take the fabric, and what packets meet on it, from `SCENARIO` instead")
}

// scenario is what a lab is built from.
func (o *fabricFlags) scenario() (*scenarios.Scenario, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	s := &scenarios.Scenario{
		Version: scenarios.FormatVersion, Name: "lab", Title: "A lab", Workload: workload.Config{Kind: workload.AllToAll},
		Fabric: scenarios.Fabric{
			Kind: scenarios.Kind(o.kind), Hosts: o.hosts, Rails: o.rails, Leaves: o.leaves, Spines: o.spines,
			Link: scenarios.Link{MTU: scenarios.Bytes(o.mtu)},
		},
	}
	if o.like != "" {
		sel := scenarios.Selection{Patterns: []string{o.like}}
		found, err := sel.Find()
		if err != nil {
			return nil, err
		}
		if len(found) != 1 {
			return nil, cmdline.Errorf("--like %s: %d scenarios match, name one", o.like, len(found))
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
		return nil, &cmdline.Error{Err: err}
	}
	if s, err = scenarios.Parse("lab.yaml", text); err != nil {
		return nil, translate(err, o.flagFor)
	}
	return s, nil
}

// check refuses numbers out of range by the names of their flags. Where a number
// is not given something else is made of it than of a 0 that is.
func (o *fabricFlags) check() error {
	fabric, link := reflect.TypeFor[scenarios.Fabric](), reflect.TypeFor[scenarios.Link]()
	for _, n := range []struct {
		flag  string
		value int
		in    reflect.Type
		field string
	}{
		{"hosts", o.hosts, fabric, "Hosts"},
		{"rails", o.rails, fabric, "Rails"},
		{"leaves", o.leaves, fabric, "Leaves"},
		{"spines", o.spines, fabric, "Spines"},
		{"mtu", o.mtu, link, "MTU"},
	} {
		if !o.given(n.flag) {
			continue
		}
		field, _ := n.in.FieldByName(n.field)
		var least, most int
		if _, err := fmt.Sscanf(field.Tag.Get("range"), "%d..%d", &least, &most); err != nil {
			return fmt.Errorf("the range of --%s: %w", n.flag, err)
		}
		if n.value < least || n.value > most {
			return cmdline.Errorf("--%s %d: give %d to %d", n.flag, n.value, least, most)
		}
	}
	return nil
}

// flagFor is the flag behind a key of the scenario that flags are made into.
func (o *fabricFlags) flagFor(key string) string {
	switch name := strings.TrimPrefix(key, "fabric."); name {
	case "kind":
		return "--fabric " + o.kind
	case "link.mtu":
		return "--mtu"
	case "hosts", "rails", "leaves", "spines":
		return "--" + name
	}
	return "the fabric"
}

// translate says of each mistake in a scenario that was made of the command line
// what it is there: the user has no such file.
func translate(err error, name func(key string) string) error {
	var all scenarios.Errors
	if !errors.As(err, &all) {
		return &cmdline.Error{Err: err}
	}
	lines := make([]string, 0, len(all))
	for _, e := range all {
		lines = append(lines, name(e.Key)+": "+e.Err.Error())
	}
	return cmdline.Errorf("%s", strings.Join(slices.Compact(lines), "\n"))
}

func newUpCommand(program string) *cobra.Command {
	var o fabricFlags
	name, direct, capture, rdma := live.DefaultName, false, "", ""
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Bring up a fabric that stays up",
		Long: `Bring up a fabric of hosts in network namespaces, without privileges. It stays up
until 'fabrictest down', or until its process ends, and leaves nothing behind.

Run programs in its hosts with 'fabrictest exec', and impair or cut its links with
'fabrictest set'.`,
		Example: `  fabrictest up --hosts 4
  fabrictest exec host0 -- ip -br address
  fabrictest set host1 loss=5% delay=1ms
  fabrictest down

  fabrictest up --name tree --fabric fat-tree --hosts 8 --spines 2
  fabrictest up --like incast-ecn
  fabrictest up --hosts 3 --capture lab.pcapng
  sudo fabrictest up --rdma rxe`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := live.CheckName(name); err != nil {
				return cmdline.Errorf("--name: %w", err)
			}
			s, err := o.scenario()
			if err != nil {
				return err
			}
			cfg := live.Config{Name: name, Scenario: s, Direct: direct, RDMA: rdma}
			if rdma != "" && rdma != "rxe" && rdma != "siw" {
				return cmdline.Errorf("--rdma %s: the kernel has rxe (RoCE) and siw (iWARP)", rdma)
			}
			if cfg.Capture, err = captureFile(capture, direct); err != nil {
				return err
			}
			if err := live.Up(cmd.Context(), cfg); err != nil {
				return err
			}
			info, err := live.Query(cmd.Context(), name)
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
	f.StringVar(&capture, "capture", "", "`FILE` (pcapng) for all that passes the cables; it is complete when the lab is down")
	f.StringVar(&rdma, "rdma", "", "give every NIC the kernel's own RDMA in software too: `KIND` is rxe or siw (as root, where the kernel has it)")
	o.flags(f)
	completeFabric(cmd)
	_ = cmd.RegisterFlagCompletionFunc("rdma", fixed("rxe", "siw"))
	return cmd
}

// captureFile is where a lab, which is nowhere in particular, writes its capture.
func captureFile(file string, direct bool) (string, error) {
	if file == "" {
		return "", nil
	}
	if direct {
		return "", cmdline.Errorf("--capture: what the kernel carries is not seen; leave out --direct")
	}
	if _, err := os.Lstat(file); err == nil {
		return "", cmdline.Errorf("--capture %s: the file is there already: name another, or remove it", file)
	}
	if info, err := os.Stat(filepath.Dir(file)); err != nil || !info.IsDir() {
		return "", cmdline.Errorf("--capture %s: there is no folder %s", file, filepath.Dir(file))
	}
	return filepath.Abs(file)
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
