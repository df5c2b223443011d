package main

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/mutant"
)

func TestReportCountsByPackage(t *testing.T) {
	mutantIn := func(file, name string) mutant.Mutant {
		return mutant.Mutant{Name: name, Does: "f: a -> b", Hunks: []mutant.Hunk{{File: file}}}
	}
	all := []mutant.Mutant{mutantIn("emu/b/x.go", "b1"), mutantIn("emu/a/x.go", "a1"), mutantIn("emu/a/y.go", "a2"), mutantIn("emu/a/y.go", "a3"), mutantIn("emu/c/x.go", "c1"), mutantIn("emu/c/x.go", "c2"), mutantIn("emu/c/x.go", "c3")}
	results := []result{{Reached: 2, KilledBy: "rc/psn/x", How: "fail"}, {Reached: 1, KilledBy: "tests", How: byTests}, {Reached: 3}, {}, {}, {KilledBy: "rc/psn/x"}, {KilledBy: "tests", How: byTests}}
	reasons := map[string]string{"emu/b f: a -> b": "statistics", "emu/c f: a -> b": "equivalent: unused", "emu/a f: a -> b": "unnoticed: no case can"}
	var out strings.Builder
	if err := report(&out, reasons, all, results, 0.4); err != nil {
		t.Error(err)
	}
	want := "a1\n    f: a -> b\n    unnoticed: no case can\na2\n    f: a -> b\n    unnoticed: no case can\na3\n    f: a -> b\n    unnoticed: no case can\n\n" +
		"package                                   mutants    cases    tests     left equivalent\n" +
		"emu/a                                           3     0.0%    33.3%        2          0\n" +
		"emu/b                                           1   100.0%   100.0%        0          0\n" +
		"emu/c                                           1   100.0%   100.0%        0          2\n" +
		"all                                             5    40.0%    60.0%        2          2\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
	if err := report(&out, reasons, all, results, 0.41); err == nil || !strings.Contains(err.Error(), "the cases kill 40.0 % of the mutants, want 41.0 %") {
		t.Errorf("minimum: %v", err)
	}
}

func TestUnnoticedMutantsAreExplained(t *testing.T) {
	for want, r := range map[string]result{
		"":                           {Reached: 2, KilledBy: "rc/psn/x", How: "fail"},
		"2 cases call the function":  {Reached: 2},
		"no case calls the function": {},
		"3 cases call the function, and only tests notice it": {Reached: 3, KilledBy: "tests", How: byTests},
	} {
		if got := unnoticed(&r); got != want {
			t.Errorf("%+v: %q, want %q", r, got, want)
		}
	}
	if got := unnoticed(&result{KilledBy: "tests", How: byTests}); got != "" { // with -cases none, no case runs
		t.Error(got)
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

// A listed survivor is a mutant of today's sources.
func TestListedSurvivorsExist(t *testing.T) {
	reasons, err := survivorReasons()
	if err != nil {
		t.Fatal(err)
	}
	folders := map[string]bool{}
	for key := range reasons {
		folder, _, _ := strings.Cut(key, " ")
		folders[folder] = true
	}
	root := must.Get(mutant.Root())(t)
	exists := map[string]bool{}
	for folder := range folders {
		files := must.Get(sourceFiles(t.Context(), root, []string{"github.com/fabrictest/fabrictest/" + folder}))(t)
		for _, m := range must.Get(mutant.Generate(root, files))(t) {
			exists[survivorKey(folder, m.Does)] = true
		}
	}
	for key := range reasons {
		if !exists[key] {
			t.Errorf("no mutant %s: correct or remove it in cmd/mutationtest/survivors", key)
		}
	}
}
