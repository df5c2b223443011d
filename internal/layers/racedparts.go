package main

import (
	"slices"
	"strings"
)

// part is a package of which CI runs only some tests with the race detector.
type part struct {
	name   string // relative to the module
	tests  string // -run pattern
	reason string // why the other tests are not needed
}

const (
	simulated = "in a simulated world, one goroutine runs at a time"
	processes = "most time is spent in other programs, which are not raced"
)

var parts = []part{
	{
		"cmd/fabrictest", "TestCertifyThroughAgent|TestInterruptedRunHasSignalExitCode|TestInterruptedConformHasSignalExitCode|" +
			"TestConformIsGolden|TestRunIsGolden|TestLabListIncludesUnresponsiveLabs|TestFuzzStopsWhenInterrupted",
		"the others call code that the tests of its packages race",
	},
	{"conformance/interop", "TestRunConnectionsLeaksNothing|TestDefectsMakeCasesFail", "the others repeat this; with losses, the devices' timers are too short"},
	{"conformance/mpi", "CasesInNamespaces", simulated},
	{"fuzz", "TestParseList", simulated},
	{"lab/experiment", "TestSensitivityNamesParameters", simulated + "; only this test simulates several"},
	{"lab/simlab", "TestInterruptedRun", simulated},
	{"mpi/carrier", "TestMessagesArrive|TestRanksOfOneHost|TestAtomics", simulated + "; mpi/work races it between NICs on sockets"},
	{"mpi/work", "Namespaces", simulated},
	{"report", "TestWriteFolderConcurrently", processes + ": a browser"},
	{"scenarios/random", "RealTime", simulated},
	{"scenarios/workload", "RealTime", simulated},
}

// partOf returns the entry in parts of the package with this path in the module. found is false if
// there is none: then CI does not limit which tests of the package run with the race detector.
func partOf(name string) (entry part, found bool) {
	i := slices.IndexFunc(parts, func(p part) bool { return p.name == name })
	if i < 0 {
		return part{}, false
	}
	return parts[i], true
}

// runPattern returns the go test -run pattern that selects the tests of all entries of parts. CI
// runs them with the race detector.
func runPattern() string {
	var all []string
	for _, p := range parts {
		if !slices.Contains(all, p.tests) {
			all = append(all, p.tests)
		}
	}
	return strings.Join(all, "|")
}
