package live

import (
	"cmp"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/scenarios"
	"github.com/fabrictest/fabrictest/scenarios/workload"
)

// FabricOptions describe the fabric of a lab. The fields are flags of the command line.
type FabricOptions struct {
	Kind                         string // pair, star or fat-tree; empty for the default
	Hosts, Rails, Leaves, Spines int
	MTU                          int
	Cable                        scenarios.CableKind    // what connects the hosts; empty for that of the scenario
	Like                         string                 // the scenario to take the fabric from
	Given                        func(flag string) bool // whether a flag was given
}

// Scenario returns a scenario for a lab, with the fabric, impairments and seed of the scenario that
// o.Like names, or else with a fabric from the other options and defaults. It returns an error if
// the fabric is invalid. The workload is never run, but the format requires one.
func (o *FabricOptions) Scenario() (*scenarios.Scenario, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	s := &scenarios.Scenario{
		Version: scenarios.FormatVersion, Name: "lab", Title: "A lab", Workload: workload.Config{Kind: workload.AllToAll},
		Fabric: scenarios.Fabric{
			Kind: scenarios.Kind(o.Kind), Hosts: o.Hosts, Rails: o.Rails, Leaves: o.Leaves, Spines: o.Spines,
			Cable: o.Cable,
			Link:  scenarios.Link{MTU: scenarios.Bytes(o.MTU)},
		},
	}
	if o.Like != "" {
		sel := scenarios.Selection{Patterns: []string{o.Like}}
		found, err := sel.Find()
		if err != nil {
			return nil, err
		}
		if len(found) != 1 {
			return nil, cli.Errorf("--like %s: %d scenarios match, name one", o.Like, len(found))
		}
		s.Fabric, s.Impair, s.Seed = found[0].Fabric, found[0].Impair, found[0].Seed
		s.Fabric.Cable = cmp.Or(o.Cable, s.Fabric.Cable)
		return s, nil
	}
	switch {
	case o.Kind == "" && o.Hosts == 2:
		s.Fabric.Kind = scenarios.Pair
	case o.Kind == "":
		s.Fabric.Kind = scenarios.Star
	case s.Fabric.Kind == scenarios.FatTree:
		s.Fabric.Leaves = cmp.Or(o.Leaves, max(2, (o.Hosts+1)/2)) // a leaf for every two hosts
		s.Fabric.Spines = cmp.Or(o.Spines, 2)
	}
	text, err := s.Marshal()
	if err != nil {
		return nil, &cli.Error{Err: err}
	}
	if s, err = scenarios.Parse("lab.yaml", text); err != nil {
		return nil, scenarios.TranslateErrors(err, o.flagFor)
	}
	return s, nil
}

// check returns an error that names the flag if a given number is outside of the range in the
// tag of the scenario's field. Numbers that were not given have defaults.
func (o *FabricOptions) check() error {
	fabric, link := reflect.TypeFor[scenarios.Fabric](), reflect.TypeFor[scenarios.Link]()
	for _, n := range []struct {
		flag  string
		value int
		owner reflect.Type // struct that has the field
		field string
	}{
		{"hosts", o.Hosts, fabric, "Hosts"},
		{"rails", o.Rails, fabric, "Rails"},
		{"leaves", o.Leaves, fabric, "Leaves"},
		{"spines", o.Spines, fabric, "Spines"},
		{"mtu", o.MTU, link, "MTU"},
	} {
		if !o.Given(n.flag) {
			continue
		}
		field, _ := n.owner.FieldByName(n.field)
		var least, most int
		if _, err := fmt.Sscanf(field.Tag.Get("range"), "%d..%d", &least, &most); err != nil {
			return fmt.Errorf("the field of --%s has an invalid range tag: %w", n.flag, err)
		}
		if n.value < least || n.value > most {
			return cli.Errorf("--%s %d: give %d to %d", n.flag, n.value, least, most)
		}
	}
	return nil
}

// flagFor returns, for error messages, the flag that sets a key such as "fabric.hosts".
func (o *FabricOptions) flagFor(key string) string {
	switch name := strings.TrimPrefix(key, "fabric."); name {
	case "kind":
		return "--fabric " + o.Kind
	case "link.mtu":
		return "--mtu"
	case "cable", "hosts", "rails", "leaves", "spines":
		return "--" + name
	}
	return "the fabric"
}

// CaptureFile checks the name of a new capture file and returns its absolute path, because the
// lab's process has another working directory. An empty name means no capture and stays empty.
// direct means that the kernel carries the cables, which cannot be captured.
func CaptureFile(file string, direct bool) (string, error) {
	if file == "" {
		return "", nil
	}
	if direct {
		return "", cli.Errorf("--capture: cables that the kernel carries cannot be captured; leave out --direct")
	}
	if _, err := os.Lstat(file); err == nil {
		return "", cli.Errorf("--capture %s: the file exists already: name another, or remove it", file)
	}
	if info, err := os.Stat(filepath.Dir(file)); err != nil || !info.IsDir() {
		return "", cli.Errorf("--capture %s: there is no folder %s", file, filepath.Dir(file))
	}
	return filepath.Abs(file)
}

// kernelRDMALibraries are the libraries that open RDMA devices of the kernel. UCX and libfabric,
// which work without such a device, load them at run time instead of linking them.
var kernelRDMALibraries = []string{"libibverbs.so", "librdmacm.so", "libibumad.so"}

// kernelRDMALibrary returns the first of kernelRDMALibraries that a program is linked with; empty
// if there is none, or the file is not an ELF file.
func kernelRDMALibrary(path string) string {
	f, err := cli.OpenFile(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	file, err := elf.NewFile(f)
	if err != nil {
		return ""
	}
	needed, _ := file.ImportedLibraries() // none in a static program
	for _, name := range needed {
		for _, known := range kernelRDMALibraries {
			if strings.HasPrefix(name, known) {
				return name
			}
		}
	}
	return ""
}

// WarnOfKernelRDMA prints a warning if a program is linked with a library for RDMA devices of
// the kernel, which the hosts of a fabric do not have. The warning names the alternatives, as
// commands of this program, which was called as calledAs.
func WarnOfKernelRDMA(w io.Writer, calledAs, program string) {
	path, err := exec.LookPath(program)
	if err != nil {
		return // starting the program reports it
	}
	library := kernelRDMALibrary(path)
	if library == "" {
		return
	}
	fmt.Fprintf(w, `fabrictest: %[1]s is linked with %[2]s, which needs RDMA devices of the kernel. The hosts of this fabric
have none: their NICs are emulated in user space, for programs over package verbs, as examples/hello.
To run %[1]s on RDMA devices in software:
  %[3]s lab up --rdma rxe      a fabric with the kernel's soft-RoCE (as root, where the kernel has rdma_rxe)
  %[3]s lab kernel up          guests with a kernel that has it, then '%[3]s lab kernel exec 1 -- %[1]s'
To measure emulated NICs: %[3]s perf quick
`, filepath.Base(program), library, calledAs)
}
