// Package fuzz has the fuzz targets that need several packages at once, whole
// stacks in simulated worlds, and the list of all targets of the module.
//
// A target here finds broken guarantees, not only crashes: no byte outside of a region changes, no
// completion is lost, duplicated or reordered, memory is bounded, and a device still works after
// hostile input has ended. The targets of a codec or an engine are in its package.
//
//   - FuzzRoCEPath, FuzzDatagramPath: a bad network between two honest devices. All
//     that their service promises must hold, as the model of package random has it.
//   - FuzzRoCEPeer, FuzzDatagramPeer: a hostile peer that knows every key and
//     builds valid packets. Memory that is not registered for it does not change.
//   - FuzzStreamPeer: any bytes on the TCP connections of a soft-iWARP device.
//   - FuzzVerbs: any sequence of verbs on every device, against a model of them.
//   - FuzzScenario: any file as a scenario.
//
// The package itself has the list, and runs the targets for cmd/fabrictest: it builds
// test programs with the go command and reads their output. It imports no stack.
package fuzz

import (
	_ "embed"
	"fmt"
	"strings"
)

// ListFile is the file of the list, relative to the folder of the module.
const ListFile = "fuzz/targets.txt"

//go:embed targets.txt
var list string

// Target is one fuzz target.
type Target struct {
	Package string // its folder in the module, as the go command takes it: "./emu/softroce/engine"
	Name    string // of its function
}

// String returns the name of the target on a command line: "emu/softroce/engine.FuzzInput".
func (t Target) String() string { return strings.TrimPrefix(t.Package, "./") + "." + t.Name }

// Targets returns the fuzz targets of the list that is embedded in the program.
func Targets() []Target {
	all, err := ParseList(list)
	if err != nil {
		panic(err) // cannot happen: a test parses the list
	}
	return all
}

// ParseList parses a list of targets. A line has the package and the name of one target:
// "./scenarios FuzzParse". Comments begin with #.
func ParseList(text string) (all []Target, err error) {
	seen := map[Target]bool{}
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		t := Target{Package: words[0]}
		if len(words) == 2 {
			t.Name = words[1]
		}
		switch {
		case len(words) != 2 || !strings.HasPrefix(t.Package, "./") || !strings.HasPrefix(t.Name, "Fuzz"):
			return nil, fmt.Errorf("%s:%d: want a package such as ./scenarios and the name of a target such as FuzzParse, not %q", ListFile, i+1, strings.TrimSpace(line))
		case seen[t]:
			return nil, fmt.Errorf("%s:%d: %v is listed twice", ListFile, i+1, t)
		}
		seen[t] = true
		all = append(all, t)
	}
	return all, nil
}
