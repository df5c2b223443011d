package mpi

import (
	"bytes"
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/fabrictest/fabrictest/conformance"
)

// Case is one rule of MPI. Its body is the program of every rank, and stops the rank if the
// rule is violated. Its defects are those of the ideal runtime.
type Case = conformance.CaseOf[func(*T)]

// Background labels cases in which the runtime must make progress while the program
// computes. The standard requires that; a runtime in mode Polling does not do it.
const Background = "progress:background"

// NeedsBackground reports whether a case requires progress in the background.
func NeedsBackground(c *Case) bool { return slices.Contains(c.Labels, Background) }

// Body returns the function that runs a case as one of its ranks; see [RunOn].
func Body(c *Case) func(World) error {
	return func(w World) error { return RunOn(c, w) }
}

// RunOn runs a case as one of its ranks. It returns nil if this rank saw no violation, a
// [*conformance.Violation] if it did, and another error if the world has the wrong size.
func RunOn(c *Case, w World) (err error) {
	if w.Size() != c.Setup.Ranks {
		return fmt.Errorf("case %s is for %d ranks, and there are %d", c.ID, c.Setup.Ranks, w.Size())
	}
	defer func() {
		switch p := recover().(type) {
		case nil:
		case rankFailed:
			err = fmt.Errorf("%s, rank %d: %w", c.ID, w.Rank(), p.violation)
		default:
			panic(p)
		}
	}()
	t := &T{Comm: w, w: w, windows: new([]*W)}
	c.Run(t)
	for len(*t.windows) > 0 {
		(*t.windows)[0].free()
	}
	return nil
}

// rankFailed is the panic of a rank that saw a violation.
type rankFailed struct{ violation error }

// programs are the programs of cases by the ids of the cases. Every rank runs the program.
type programs map[string]func(*T)

//go:embed cases.yaml
var casesFile []byte

// Cases returns all cases, by section.
func Cases() []Case { return slices.Clone(readCases()) }

// readCases reads the cases from cases.yaml, and adds their programs. It panics if the file
// is invalid.
var readCases = sync.OnceValue(func() []Case {
	all := make(programs)
	for _, some := range []programs{
		orderPrograms, wildcardPrograms, modePrograms, bufferedPrograms, truncatePrograms, emptyPrograms, nullPrograms,
		selfPrograms, probePrograms, matchedPrograms, cancelPrograms, persistentPrograms, waitPrograms, testPrograms,
		requestPrograms, sizePrograms, floodPrograms, exchangePrograms, progressPrograms, commPrograms, splitPrograms,
		worldPrograms, argumentPrograms, handlerPrograms, barrierPrograms, collectivePrograms, windowPrograms,
		fencePrograms, pscwPrograms, lockPrograms, flushPrograms, rmaRequestPrograms, assertPrograms,
		accumulatePrograms, atomicPrograms, rmaErrorPrograms,
	} {
		maps.Copy(all, some)
	}
	var read []struct {
		ID, Title, Sends, Expects string
		Rows, Labels, Defects     []string
		Ranks                     int
		PerHost                   int `yaml:"per_host"`
	}
	in := yaml.NewDecoder(bytes.NewReader(casesFile))
	in.KnownFields(true)
	if err := in.Decode(&read); err != nil {
		panic(fmt.Errorf("cases.yaml: %w", err))
	}
	var cases []Case
	for _, c := range read {
		section := strings.Split(c.Rows[0], "/")[1] // a row is mpi/SECTION/NUMBER
		cases = append(cases, Case{
			ID: c.ID, Title: c.Title, Cite: conformance.Cite{Doc: "MPI 3.1", Section: section, Rows: c.Rows},
			Setup: conformance.Setup{Ranks: c.Ranks, PerNode: c.PerHost}, Labels: c.Labels,
			Sends: c.Sends, Expects: c.Expects, Defects: c.Defects, Run: all[c.ID],
		})
		delete(all, c.ID)
	}
	if len(all) > 0 {
		panic(fmt.Sprintf("cases.yaml has no entry for the programs %v", slices.Sorted(maps.Keys(all))))
	}
	return conformance.WithGroup(conformance.Group{Setup: conformance.Setup{Ranks: 2}}, cases)
})
