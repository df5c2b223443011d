package main

import (
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestConcurrentFilesAreRecognised(t *testing.T) {
	for body, want := range map[string]bool{
		"func f() {}": false,
		"import \"context\"\nvar _ context.Context":                     false,
		"func f() { go f() }":                                           true,
		"type s struct{ done chan struct{} }":                           true,
		"import \"sync\"\nvar mu sync.Mutex":                            true,
		"import \"sync/atomic\"\nvar n atomic.Int64":                    true,
		"import \"testing\"\nfunc TestA(t *testing.T) { t.Parallel() }": true,
	} {
		f, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x\n"+body, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := concurrent(f); got != want {
			t.Errorf("%s: %v, want %v", body, got, want)
		}
	}
}

// Packages of every layer are known to start goroutines; if the rule lost one of them, CI
// would race less than it claims.
func TestKnownPackagesAreRaced(t *testing.T) {
	all, err := packages("../..")
	if err != nil {
		t.Fatal(err)
	}
	raced := map[string]bool{}
	for _, p := range all {
		raced[strings.TrimPrefix(p.ImportPath, module+"/")] = p.concurrent && p.hasTests()
	}
	for _, name := range []string{
		"agent", "cmd/fabrictest", "conformance/mpi", "emu/internal/drive", "emu/link/udplink", "emu/softiwarp", "emu/softroce", "lab/bench",
		"launch", "mpi", "mpi/carrier", "mpi/trials", "netns", "scenarios/workload",
	} {
		if !raced[name] {
			t.Errorf("%s is not raced", name)
		}
	}
	for _, name := range []string{"emu/softroce/wire", "emu/softiwarp/engine", "mpi/match"} {
		if raced[name] {
			t.Errorf("%s is raced: which goroutines meet in it?", name)
		}
	}
}

// Each pattern leaves out tests of the packages that it is for, and no others.
func TestSkipsNameTestsOfTheirPackages(t *testing.T) {
	all, err := packages("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range skips {
		pattern, err := regexp.Compile(s.top())
		if err != nil {
			t.Fatal(err)
		}
		if s.reason == "" {
			t.Errorf("%s is left out without a reason", s.tests)
		}
		for _, p := range all {
			name := strings.TrimPrefix(p.ImportPath, module+"/")
			matches := p.hasTests() && slices.ContainsFunc(p.tests, pattern.MatchString)
			if want := slices.Contains(strings.Fields(s.packages), name); matches != want && (want || p.concurrent) {
				t.Errorf("%s: matches a test of %s: %v, want %v", s.tests, name, matches, want)
			}
		}
	}
}
