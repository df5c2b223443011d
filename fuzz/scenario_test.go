package fuzz_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/scenarios"
)

// FuzzScenario: whatever is in a file, reading it ends soon, in a plan of the run or
// in errors that say where they are. A plan agrees with its scenario: it has ports
// for every NIC, its steps are in order, and they name ports and hosts that exist.
func FuzzScenario(f *testing.F) {
	scenarioSeeds(f, func(b []byte) { f.Add(b) })
	f.Fuzz(func(t *testing.T, b []byte) { scenario(t, b) })
}

func scenarioSeeds(t testing.TB, add func([]byte)) {
	t.Helper()
	files, err := fs.Glob(scenarios.Files(), "*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, name := range files {
		b := must.Get(fs.ReadFile(scenarios.Files(), name))(t)
		add(b)
	}
	more, err := filepath.Glob("../scenarios/testdata/*/*.yaml")
	if err != nil || len(more) == 0 {
		t.Fatalf("no test data of scenarios: %v", err)
	}
	for _, name := range more {
		b := must.Get(os.ReadFile(name))(t)
		add(b)
	}
}

// soon is far more than a plan takes, on a machine that does much else besides.
const soon = 20 * time.Second

func scenario(t testing.TB, b []byte) {
	t.Helper()
	began := time.Now()
	s, err := scenarios.Parse("any.yaml", b)
	if err != nil {
		positions(t, len(b), err)
		return
	}
	plan, err := lab.NewPlan(s, lab.Options{})
	if took := time.Since(began); took > soon {
		t.Fatalf("%v for %d bytes", took, len(b))
	}
	if err != nil {
		positions(t, len(b), err)
		return
	}
	agrees(t, s, plan)
	// Where it does not suit a tier, or another provider, somebody says so in words.
	for _, tier := range []scenarios.Tier{scenarios.Sim, scenarios.NetNS} {
		_ = lab.Incompatibility(s, tier)
		for _, k := range kinds {
			_ = lab.Incompatibility(lab.WithProvider(s, k.name), tier)
		}
	}
}

// positions checks that errors of a file of n bytes say where they are.
func positions(t testing.TB, n int, err error) {
	t.Helper()
	var all scenarios.Errors
	var one *scenarios.Error
	switch {
	case errors.As(err, &all):
	case errors.As(err, &one):
		all = scenarios.Errors{one}
	default:
		t.Fatalf("an error that is not about the file: %T: %v", err, err)
	}
	if len(all) == 0 {
		t.Fatal("an error without errors")
	}
	for _, e := range all {
		// A file that is too long, or holds nothing, is wrong as a whole.
		if e.File != "any.yaml" || e.Line <= 0 && (e.Key != "" || n > 0 && n <= scenarios.MaxFileBytes) || e.Err == nil {
			t.Fatalf("an error that does not say where: %v", e)
		}
	}
}

func agrees(t testing.TB, s *scenarios.Scenario, plan *lab.Plan) {
	t.Helper()
	nics := s.Fabric.HostCount() * s.Fabric.RailCount()
	ports := 0
	for i, p := range plan.Ports {
		if p.Host >= s.Fabric.HostCount() || p.Cable < 0 || p.Cable >= len(plan.Topology.Cables) {
			t.Fatalf("port %d is of host %d and cable %d", i, p.Host, p.Cable)
		}
		if p.Host >= 0 {
			ports++
		}
	}
	if ports != nics {
		t.Fatalf("%d ports of hosts for %d NICs", ports, nics)
	}
	var last time.Duration
	for i, step := range plan.Steps {
		if step.At < last {
			t.Fatalf("step %d is at %v, behind one at %v", i, step.At, last)
		}
		last = step.At
		for _, port := range step.Ports {
			if port < 0 || port >= len(plan.Ports) {
				t.Fatalf("step %d is about port %d", i, port)
			}
		}
		for _, host := range step.Hosts {
			if host < 0 || host >= s.Fabric.HostCount() {
				t.Fatalf("step %d is about host %d", i, host)
			}
		}
		if plan.DescribeStep(&plan.Steps[i]) == "" {
			t.Fatalf("step %d has no name", i)
		}
	}
	if plan.Limit <= 0 {
		t.Fatalf("a limit of %v", plan.Limit)
	}
}
