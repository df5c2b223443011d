package main

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fabrictest/fabrictest/internal/mutant"
)

func TestReportCountsByPackage(t *testing.T) {
	mutantIn := func(file, name string) mutant.Mutant {
		return mutant.Mutant{Name: name, Does: "f: a -> b", Hunks: []mutant.Hunk{{File: file}}}
	}
	all := []mutant.Mutant{mutantIn("emu/b/x.go", "b1"), mutantIn("emu/a/x.go", "a1"), mutantIn("emu/a/y.go", "a2"), mutantIn("emu/a/y.go", "a3")}
	results := []result{{Reached: 2, KilledBy: "rc/psn/x", How: "fail"}, {Reached: 1, KilledBy: "tests", How: byTests}, {Reached: 3}, {}}
	var out strings.Builder
	if err := report(&out, all, results, 0.25); err != nil {
		t.Error(err)
	}
	want := "a2\n    f: a -> b\n    3 cases call the function\na3\n    f: a -> b\n    no case calls the function\n\n" +
		"package                                   mutants    cases    tests     left\n" +
		"emu/a                                           3     0.0%    33.3%        2\n" +
		"emu/b                                           1   100.0%   100.0%        0\n" +
		"all                                             4    25.0%    50.0%        2\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
	if err := report(&out, all, results, 0.26); err == nil || !strings.Contains(err.Error(), "the cases kill 25.0 % of the mutants, want 26.0 %") {
		t.Errorf("minimum: %v", err)
	}
}

func TestParallelTakesEachNumberOnce(t *testing.T) {
	var mu sync.Mutex
	var taken []int
	failed := errors.New("one worker fails")
	workers := 0
	err := parallel(100, 3, "taken", func(next func() (int, bool)) error {
		mu.Lock()
		workers++
		first := workers == 1
		mu.Unlock()
		for i, ok := next(); ok; i, ok = next() {
			mu.Lock()
			taken = append(taken, i)
			mu.Unlock()
		}
		if first {
			return failed
		}
		return nil
	})
	slices.Sort(taken)
	if !errors.Is(err, failed) || workers != 3 || len(taken) != 100 || taken[0] != 0 || taken[99] != 99 {
		t.Errorf("%d numbers by %d workers, %v", len(taken), workers, err)
	}
}
