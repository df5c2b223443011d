package main

import (
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
)

func TestUsesConcurrency(t *testing.T) {
	for body, want := range map[string]bool{
		"func f() {}": false,
		"import \"context\"\nvar _ context.Context":                     false,
		"func f() { go f() }":                                           true,
		"type s struct{ done chan struct{} }":                           true,
		"import \"sync\"\nvar mu sync.Mutex":                            true,
		"import \"sync\"\nvar p sync.Pool":                              false,
		"import \"sync/atomic\"\nvar n atomic.Int64":                    true,
		"import \"testing\"\nfunc TestA(t *testing.T) { t.Parallel() }": true,
	} {
		f := must.Get(parser.ParseFile(token.NewFileSet(), "x.go", "package x\n"+body, 0))(t)
		if got := usesConcurrency(f); got != want {
			t.Errorf("%s: %v, want %v", body, got, want)
		}
	}
}

// modulePackages lists and parses the packages of this module once for all tests.
var modulePackages = sync.OnceValues(func() ([]*testedPackage, error) { return readPackages("../..") })

// packagesByName returns the packages of this module by name.
func packagesByName(t *testing.T) map[string]*testedPackage {
	t.Helper()
	all := must.Get(modulePackages())(t)
	byName := map[string]*testedPackage{}
	for _, p := range all {
		byName[p.name()] = p
	}
	return byName
}

// If the rule missed one of these packages, CI would test less than it claims.
func TestKnownPackagesNeedRace(t *testing.T) {
	byName := packagesByName(t)
	for name, want := range map[string]bool{
		"agent": true, "cmd/fabrictest": true, "conformance/mpi": true, "emu/internal/drive": true, "emu/link/udplink": true,
		"emu/softiwarp": true, "emu/softroce": true, "lab/bench": true, "launch": true, "mpi": true, "mpi/carrier": true, "mpi/work": true,
		"netns": true, "scenarios/workload": true,
		"emu/softiwarp/engine": false, "emu/softroce/wire": false, "mpi/p2p": false,
	} {
		if p := byName[name]; p == nil || p.needsRace() != want {
			t.Errorf("%s: raced %v, want %v", name, !want, want)
		}
	}
}

// A pattern that matches no test would exclude the whole package.
func TestPartsNameTestsThatExist(t *testing.T) {
	byName := packagesByName(t)
	for _, part := range parts {
		p := byName[part.name]
		if p == nil || !p.needsRace() || part.reason == "" {
			t.Errorf("%s is not raced, or a part of it without a reason", part.name)
			continue
		}
		for pattern := range strings.SplitSeq(part.tests, "|") {
			if pattern != "^$" && !slices.ContainsFunc(p.tests, regexp.MustCompile(pattern).MatchString) {
				t.Errorf("%s has no test %s", part.name, pattern)
			}
		}
	}
}
