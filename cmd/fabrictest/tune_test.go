package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
)

// ruleAlgorithm finds the algorithm of a rule.
var ruleAlgorithm = regexp.MustCompile(`algorithm: ([a-z-]+)`)

// A table of tune chooses the algorithms of mpirun on the same fabric, and not on another.
func TestTableOfTuneChoosesAlgorithms(t *testing.T) {
	dir := t.TempDir()
	table, page := filepath.Join(dir, "tuned.yaml"), filepath.Join(dir, "tuned.html")
	code, _, errs := call(t, "tune", "--on", "sim", "--ranks", "4", "--operation", "bcast", "--sizes", "4K", "--out", table, "--html", page)
	if code != exitOK {
		t.Fatal(errs)
	}
	wantIn(t, errs, "Another algorithm than the default is best at 1 of 1 points")
	wantIn(t, string(must.Get(os.ReadFile(page))(t)), "bcast", "4 ranks, 1 per host", "4.0 KiB")
	text := string(must.Get(os.ReadFile(table))(t))
	wantIn(t, text, "{tier: sim, platform: none, provider: softroce, topology: switch, rails: 1, cable: none}", "{operation: bcast, ranks: 4, per_host: 1, to: 4096, algorithm: ")

	result := filepath.Join(dir, "result.json")
	measure := func(args ...string) (stderr, text string) {
		code, _, errs := call(t, append(append([]string{"mpirun", "-n", "4", "--on", "sim", "--collectives", "@" + table}, args...), "collective", "--operation", "bcast", "--sizes", "4K", "--json", result)...)
		if code != exitOK {
			t.Fatal(errs)
		}
		return errs, string(must.Get(os.ReadFile(result))(t))
	}
	if errs, result := measure(); errs != "" {
		t.Errorf("%s%s", errs, result)
	} else if name := ruleAlgorithm.FindStringSubmatch(text)[1]; name == "binomial" {
		t.Error("the default is chosen")
	} else {
		wantIn(t, result, `"algorithm":"`+name+`"`)
	}
	errs, text = measure("--rails", "2")
	wantIn(t, errs, "has no rules for this fabric")
	wantIn(t, text, `"algorithm":"binomial"`)
	if code, _, errs := call(t, "mpirun", "--collectives", "@"+filepath.Join(dir, "none.yaml"), "ring"); code != exitUsage {
		t.Errorf("a file that does not exist: exit code %d, %s", code, errs)
	}
}
