package docs

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/conformance/judge"
	"github.com/fabrictest/fabrictest/conformance/mpi"
	"github.com/fabrictest/fabrictest/mpi/work"
	"github.com/fabrictest/fabrictest/scenarios"
)

// count matches a documented number; after "more than" it is rounded down.
var count = regexp.MustCompile(`(more than )?\b([0-9][0-9,]*)\s+(conformance cases|cases of MPI rules|scenarios of this repository|workloads)\b`)

// vague matches numbers in words, which no test can check.
var vague = regexp.MustCompile(`(?i)\b(some|about|nearly|almost|over)\s+([a-z]+-[a-z]+|[a-z]+ hundred|hundreds|dozens)\b`)

// Documents give the current numbers of cases, scenarios and workloads. A number after "more than"
// is rounded down to a multiple of step.
func TestDocumentedCountsMatchTree(t *testing.T) {
	shipped, err := scenarios.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	cases := 0
	for _, s := range judge.Suites() {
		cases += len(s.Cases)
	}
	tree := map[string]struct{ n, step int }{
		"conformance cases": {cases, 100}, "cases of MPI rules": {len(mpi.Cases()), 10}, "scenarios of this repository": {len(shipped), 10}, "workloads": {len(work.All()), 10},
	}
	found := map[string]bool{}
	for _, name := range documents(t) {
		text := read(t, name)
		for _, m := range count.FindAllStringSubmatch(strings.ReplaceAll(text, "\n  ", " "), -1) {
			n, err := strconv.Atoi(strings.ReplaceAll(m[2], ",", ""))
			want := tree[m[3]].n
			if m[1] != "" {
				want -= want % tree[m[3]].step
			}
			if err != nil || n != want {
				t.Errorf("%s: %q, but there are %d: write %d", name, m[0], tree[m[3]].n, want)
			}
			found[name+": "+m[3]] = true
		}
	}
	for _, want := range []string{"README.md: conformance cases", "README.md: scenarios of this repository", "README.md: workloads", "docs/mpi.md: cases of MPI rules"} {
		if !found[want] {
			t.Errorf("found no number for %s: has its wording changed?", want)
		}
	}
	for _, m := range vague.FindAllString(read(t, "README.md"), -1) {
		t.Errorf("README.md: %q: write a number that a test can check", m)
	}
}
