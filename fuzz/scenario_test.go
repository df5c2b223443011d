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

// FuzzScenario: any file is parsed in a short time, into a plan of the run or errors with
// positions. A plan matches its scenario: it has ports for every NIC, and its steps are in order
// and name existing ports and hosts.
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

// parseLimit is far longer than a plan takes, even on a busy machine.
const parseLimit = 20 * time.Second

func scenario(t testing.TB, b []byte) {
	t.Helper()
	began := time.Now()
	s, err := scenarios.Parse("any.yaml", b)
	if err != nil {
		positions(t, len(b), err)
		return
	}
	plan, err := lab.NewPlan(s, lab.Options{})
	if took := time.Since(began); took > parseLimit {
		t.Fatalf("%v for %d bytes", took, len(b))
	}
	if err != nil {
		positions(t, len(b), err)
		return
	}
	agrees(t, s, plan)
	// It may not fit a tier or another provider: then there is an error.
	for _, tier := range []scenarios.Tier{scenarios.Sim, scenarios.NetNS} {
		_ = lab.Incompatibility(s, tier)
		for _, k := range kinds {
			_ = lab.Incompatibility(lab.WithProvider(s, k.name), tier)
		}
	}
}

// positions checks that errors of a file of n bytes have positions.
func positions(t testing.TB, n int, err error) {
	t.Helper()
	var all scenarios.Errors
	var one *scenarios.Error
	switch {
	case errors.As(err, &all):
	case errors.As(err, &one):
		all = scenarios.Errors{one}
	default:
		t.Fatalf("not a scenario error: %T: %v", err, err)
	}
	if len(all) == 0 {
		t.Fatal("an empty error list")
	}
	for _, e := range all {
		// A file that is too long or empty is wrong as a whole.
		if e.File != "any.yaml" || e.Line <= 0 && (e.Key != "" || n > 0 && n <= scenarios.MaxFileBytes) || e.Err == nil {
			t.Fatalf("an error without a position: %v", e)
		}
	}
}

func agrees(t testing.TB, s *scenarios.Scenario, plan *lab.Plan) {
	t.Helper()
	nics := s.Fabric.HostCount() * s.Fabric.RailCount()
	ports := 0
	for i, p := range plan.Ports {
		if p.Host >= s.Fabric.HostCount() || p.Cable < 0 || p.Cable >= len(plan.Topology.Cables) {
			t.Fatalf("port %d has host %d and cable %d", i, p.Host, p.Cable)
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
			t.Fatalf("step %d is at %v, after one at %v", i, step.At, last)
		}
		last = step.At
		for _, port := range step.Ports {
			if port < 0 || port >= len(plan.Ports) {
				t.Fatalf("step %d names port %d", i, port)
			}
		}
		for _, host := range step.Hosts {
			if host < 0 || host >= s.Fabric.HostCount() {
				t.Fatalf("step %d names host %d", i, host)
			}
		}
		if plan.DescribeStep(&plan.Steps[i]) == "" {
			t.Fatalf("step %d has no name", i)
		}
	}
	if plan.Limit <= 0 {
		t.Fatalf("limit %v", plan.Limit)
	}
}
