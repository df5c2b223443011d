// Package fuzz has the fuzz targets that need several packages at once, whole
// stacks in simulated worlds, and the list of all targets of the module.
//
// A target here hunts broken promises, not only crashes: no byte outside of a
// region changes, no completion is lost, doubled or reordered, nothing grows
// without bound, and a device still works when its tormentor has gone. The targets
// of a codec or an engine stand beside it.
//
//   - FuzzRoCEPath, FuzzDatagramPath: a bad network between two honest devices. All
//     that their service promises must hold, as the model of package random has it.
//   - FuzzRoCEPeer, FuzzDatagramPeer: whoever is in between knows every key, and
//     makes packets that look right. What is not registered for it stays as it is.
//   - FuzzStreamPeer: any bytes on the TCP connections of a soft-iWARP device.
//   - FuzzVerbs: any sequence of verbs on every device, against a model of them.
//   - FuzzScenario: any file as a scenario.
//
// The package itself has the list and what runs the targets, for cmd/fabrictest: it
// builds test programs with the go command and reads their output. It imports no stack.
package fuzz

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// ListFile is where the list is, in the folder of the module.
const ListFile = "fuzz/targets.txt"

//go:embed targets.txt
var list string

// Target is one fuzz target.
type Target struct {
	Package string // its folder in the module, as the go command takes it: "./emu/softroce/engine"
	Name    string // of its function
}

// String is how a target is named on a command line: "emu/softroce/engine.FuzzInput".
func (t Target) String() string { return strings.TrimPrefix(t.Package, "./") + "." + t.Name }

// Targets lists the targets that the program was built with.
func Targets() []Target {
	all, err := ParseList(list)
	if err != nil {
		panic(err) // a test reads the same list
	}
	return all
}

// ParseList reads a list: a line for each target, its package and its name, and
// comments behind #.
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
			return nil, fmt.Errorf("%s:%d: %v is there twice", ListFile, i+1, t)
		}
		seen[t] = true
		all = append(all, t)
	}
	return all, nil
}

const tempDirs = "fabrictest-fuzz-"

// tempDir is a folder for test programs. Its process keeps it locked, so that a later
// run can remove the folder of a process that was killed.
type tempDir struct {
	path string
	lock *os.File
}

// newTempDir makes a folder, and removes those that no process has locked.
func newTempDir() (*tempDir, error) {
	left, err := filepath.Glob(filepath.Join(os.TempDir(), tempDirs+"*"))
	if err != nil {
		return nil, err
	}
	for _, path := range left {
		// A folder that another process is creating has no lock file yet and is kept;
		// another user's lock cannot be opened.
		if d, err := lockDir(path, os.O_RDWR); err == nil {
			d.close()
		}
	}
	path, err := os.MkdirTemp("", tempDirs)
	if err != nil {
		return nil, err
	}
	d, err := lockDir(path, os.O_RDWR|os.O_CREATE)
	if err != nil {
		_ = os.RemoveAll(path)
	}
	return d, err
}

func lockDir(path string, flags int) (*tempDir, error) {
	f, err := os.OpenFile(filepath.Join(path, "lock"), flags, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, err
	}
	return &tempDir{path: path, lock: f}, nil
}

func (d *tempDir) close() {
	_ = os.RemoveAll(d.path)
	_ = d.lock.Close()
}
