// Package tuning has the files of `fabrictest tune`: the best algorithms of collective operations on a
// fabric, by operation, ranks and size. The lists of --collectives name them as @FILE.
package tuning

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/mpi/coll"
)

//go:embed schema.json
var schema []byte

// Schema returns the JSON schema of the files.
func Schema() []byte { return schema }

// File is a file of `fabrictest tune`, as YAML or JSON.
type File struct {
	// Version is 1.
	Version int `yaml:"version"`
	// Tables have the rules of one fabric each.
	Tables []Table `yaml:"tables"`
}

// Table has the rules of a fabric.
type Table struct {
	// Fabric is where the rules apply.
	Fabric Fabric `yaml:"fabric"`
	// Command has measured the table.
	Command string `yaml:"command,omitempty"`
	// Rules choose algorithms by operation, ranks and size. No two rules apply to the same call.
	Rules []Rule `yaml:"rules"`
}

// Fabric is where ranks run. A key that is left out stands for any value.
type Fabric struct {
	// Tier is sim for the simulation, netns for real time, or device for RDMA devices of this host.
	Tier string `yaml:"tier,omitempty"`
	// Platform is the platform of a simulation, or none for the default times.
	Platform string `yaml:"platform,omitempty"`
	// Provider is whose protocol the NICs have, such as softroce; ibverbs for devices.
	Provider string `yaml:"provider,omitempty"`
	// Topology is what connects the hosts: switch, or none for devices.
	Topology string `yaml:"topology,omitempty"`
	// Rails is the number of NICs of a host.
	Rails int `yaml:"rails,omitempty"`
	// Cable is veth or shm in real time, and none in a simulation.
	Cable string `yaml:"cable,omitempty"`
}

// Switch is the topology of hosts around one switch.
const Switch = "switch"

// None is the value of a key of Fabric that a kind of fabric does not have.
const None = "none"

// Rule is a rule of the runtime, with its gain.
type Rule struct {
	coll.Rule `yaml:",inline"`
	// Gain is by how many per cent the algorithm takes less time than the default, at its best size; 0 for the
	// default.
	Gain float64 `yaml:"gain,omitempty"`
}

// maxFile is the largest size of a file.
const maxFile = 16 << 20

// Load reads a file. An error names the line.
func Load(name string) (*File, error) {
	text, err := cli.ReadFile(name, maxFile)
	if err != nil {
		return nil, err
	}
	f, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return f, nil
}

// Parse parses a file.
func Parse(text []byte) (*File, error) {
	f := new(File)
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(f); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("line 1: the file is empty")
		}
		return nil, err
	}
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		return nil, err
	}
	return f, f.check(root.Content[0])
}

// check returns an error, with its line, if a value is wrong. root is the file as a tree.
func (f *File) check(root *yaml.Node) error {
	if f.Version != 1 {
		return fmt.Errorf("line %d: version %d: give 1", child(root, "version").Line, f.Version)
	}
	tables := child(root, "tables")
	for i := range f.Tables {
		rules := child(item(tables, i), "rules")
		var before []int // lines
		for k := range f.Tables[i].Rules {
			r, line := &f.Tables[i].Rules[k], item(rules, k).Line
			if err := r.Check(); err != nil {
				return fmt.Errorf("line %d: %w", line, err)
			}
			for b := range before {
				if r.Overlaps(&f.Tables[i].Rules[b].Rule) {
					return fmt.Errorf("line %d: the rule has sizes of that in line %d", line, before[b])
				}
			}
			before = append(before, line)
		}
	}
	return nil
}

// child returns the value of a key of a mapping, or the mapping itself if it does not have the key.
func child(n *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return n
}

// item returns item i of a list, or the list itself if it has fewer, as an alias has.
func item(n *yaml.Node, i int) *yaml.Node {
	if i < len(n.Content) {
		return n.Content[i]
	}
	return n
}

// RulesOn returns the rules of the tables that apply to a fabric.
func (f *File) RulesOn(where *Fabric) (all []coll.Rule) {
	for i := range f.Tables {
		if f.Tables[i].Fabric.covers(where) {
			for k := range f.Tables[i].Rules {
				all = append(all, f.Tables[i].Rules[k].Rule)
			}
		}
	}
	return all
}

// covers reports whether the keys that f has are those of another fabric.
func (f *Fabric) covers(o *Fabric) bool {
	is := func(have, want string) bool { return have == "" || have == want }
	return is(f.Tier, o.Tier) && is(f.Platform, o.Platform) && is(f.Provider, o.Provider) && is(f.Topology, o.Topology) &&
		is(f.Cable, o.Cable) && (f.Rails == 0 || f.Rails == o.Rails)
}

// RulesIn returns the rules of files for a fabric. It is an error if two apply to the same call.
func RulesIn(files []string, where *Fabric) (all []coll.Rule, err error) {
	for _, name := range files {
		f, err := Load(name)
		if err != nil {
			return nil, err
		}
		for _, r := range f.RulesOn(where) {
			if slices.ContainsFunc(all, func(o coll.Rule) bool { return o.Overlaps(&r) }) {
				return nil, fmt.Errorf("%s: several tables for this fabric have rules for %s with %d ranks", name, r.Operation, r.Ranks)
			}
			all = append(all, r)
		}
	}
	return all, nil
}

// Write writes the file as YAML, a rule a line.
func (f *File) Write(w io.Writer) error {
	var b strings.Builder
	b.WriteString("# The best algorithms of collective operations, by 'fabrictest tune'. 'fabrictest mpirun --collectives @FILE' uses them.\n")
	fmt.Fprintf(&b, "version: %d\ntables:\n", f.Version)
	for i := range f.Tables {
		t := &f.Tables[i]
		fmt.Fprintf(&b, "  - fabric: %s", &t.Fabric)
		fmt.Fprintf(&b, "\n    command: %q\n    rules:\n", t.Command)
		for k := range t.Rules {
			fmt.Fprintf(&b, "      - %s\n", &t.Rules[k])
		}
		if len(t.Rules) == 0 {
			b.WriteString("      []\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// String returns the fabric on one line of YAML.
func (f *Fabric) String() string { return oneLine(f) }

// String returns the rule on one line of YAML.
func (r *Rule) String() string {
	rounded := *r
	rounded.Gain = math.Round(r.Gain)
	return oneLine(&rounded)
}

// oneLine returns a struct as YAML on one line.
func oneLine(v any) string {
	var n yaml.Node
	if err := n.Encode(v); err != nil {
		return err.Error() // a struct of strings and numbers has none
	}
	n.Style = yaml.FlowStyle
	text, err := yaml.Marshal(&n)
	if err != nil {
		return err.Error()
	}
	return strings.Join(strings.Fields(string(text)), " ")
}
