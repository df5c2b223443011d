package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
)

// fixtureRules has rules of every kind; the fixture module violates all of them.
func fixtureRules() RuleSet {
	return RuleSet{
		Boundaries: []Boundary{
			{Name: "api", From: []string{"./api/..."}, Only: []string{"std", "./api/..."}, Tests: true, Why: "the API stands alone"},
			{Name: "judge", From: []string{"./judge/..."}, Except: []string{"./judge/peer"}, Never: []string{"./emu/..."}, Through: true, Why: "independent"},
			{Name: "both", From: []string{"./both"}, Never: []string{"./emu"}, Through: true, Tests: true, Why: "tests too"},
			{Name: "plain", From: []string{"./..."}, Never: []string{"github.com/onsi/..."}, Tests: true, Why: "plain testing"},
			{
				Name: "pure", From: []string{"./pure"}, Through: true,
				Only: []string{"./helper", "maps", "reflect", "slices", "time"}, Why: "values only",
				Because: map[string]string{"sync/...": "single owner", "os": "no I/O"},
			},
		},
		Purities: []Purity{
			{Name: "pure", From: []string{"./pure"}, Bans: BanAll, Why: "values only"},
			{Name: "seeded", From: []string{"./seeded", "./later"}, Bans: BanClock | BanMapOrder | BanGlobalRand, Why: "one seed"},
		},
		Cgo:     CgoRule{In: []string{"./c"}, Why: "stay plain"},
		Planned: []string{"./later"},
	}
}

// The findings must match the want comments of the fixture.
func TestCheckReportsExactlyTheViolations(t *testing.T) {
	tree := load(t, "testdata/fixture")
	found := must.Get(fixtureRules().Check(tree))(t)
	wants := readWants(t, tree)
	for _, f := range found {
		at := fmt.Sprintf("%s:%d", f.Pos.Filename, f.Pos.Line)
		i := slices.IndexFunc(wants[at], func(w string) bool { return strings.Contains(f.Msg, w) })
		if i < 0 {
			t.Errorf("unexpected finding: %v", f)
			continue
		}
		wants[at] = slices.Delete(wants[at], i, i+1)
	}
	for at, rest := range wants {
		for _, w := range rest {
			t.Errorf("%s: violation was not reported: %s", at, w)
		}
	}
}

// readWants collects the want comments, by "file:line".
func readWants(t *testing.T, tree *Tree) map[string][]string {
	t.Helper()
	comment, quoted := regexp.MustCompile(`want (".*")`), regexp.MustCompile(`"([^"]*)"`)
	wants := map[string][]string{}
	for _, p := range tree.Packages {
		for _, f := range p.Files {
			src := must.Get(os.ReadFile(filepath.Join(tree.Root, f.Name)))(t)
			for i, line := range strings.Split(string(src), "\n") {
				if m := comment.FindStringSubmatch(line); m != nil {
					for _, q := range quoted.FindAllStringSubmatch(m[1], -1) {
						at := fmt.Sprintf("%s:%d", f.Name, i+1)
						wants[at] = append(wants[at], q[1])
					}
				}
			}
		}
	}
	if len(wants) == 0 {
		t.Fatal("the fixture has no want comments")
	}
	return wants
}

func TestCheckReportsUnmatchedPatterns(t *testing.T) {
	tree := load(t, "testdata/fixture")
	for name, tc := range map[string]struct {
		rules RuleSet
		want  string
	}{
		"our folder misspelt": {
			RuleSet{Boundaries: []Boundary{{Name: "r", From: []string{"./aip"}}}}, `./aip matches no package`,
		},
		"misspelt target": {
			RuleSet{Boundaries: []Boundary{{Name: "r", From: []string{"./api"}, Never: []string{"./emuu/..."}}}}, `./emuu/... matches no package`,
		},
		"standard package misspelt": {
			RuleSet{Boundaries: []Boundary{{Name: "r", From: []string{"./api"}, Never: []string{"nett/..."}}}}, `nett/... is not in the standard library`,
		},
		"our folder without ./": {
			RuleSet{Purities: []Purity{{Name: "r", From: []string{"pure"}}}}, `pure is not in the standard library`,
		},
		"reason for an unknown package": {
			RuleSet{Boundaries: []Boundary{{Name: "r", From: []string{"./api"}, Because: map[string]string{"oss": "x"}}}}, `oss is not in the standard library`,
		},
		"planned folder exists": {
			RuleSet{Boundaries: []Boundary{{Name: "r", From: []string{"./api"}}}, Planned: []string{"./api"}}, `./api exists now`,
		},
		"planned folder in no rule": {
			RuleSet{Planned: []string{"./mpi"}}, `but in no rule`,
		},
	} {
		found := must.Get(tc.rules.Check(tree))(t)
		if !slices.ContainsFunc(found, func(f Finding) bool { return strings.Contains(f.Msg, tc.want) }) {
			t.Errorf("%s: got %v, want %q", name, found, tc.want)
		}
	}
}

func load(t *testing.T, dir string) *Tree {
	t.Helper()
	tree := must.Get(Load(dir))(t)
	return tree
}

// TestLayers checks this module against Rules.
func TestLayers(t *testing.T) {
	tree := load(t, "../..")
	found := must.Get(Rules().Check(tree))(t)
	for _, f := range found {
		t.Error(f)
	}
}
