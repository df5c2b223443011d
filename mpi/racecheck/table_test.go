package racecheck_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
)

var update = flag.Bool("update", false, "write the results to docs/races.md")

// counts are the numbers of programs by category and verdict, in the order of the first program.
var (
	categories []string
	counts     = map[string]map[verdict]int{}
)

// count counts a program. One with a false verdict fails the test.
func count(t *testing.T, category, name string, v verdict, text string) {
	t.Helper()
	if counts[category] == nil {
		categories, counts[category] = append(categories, category), map[verdict]int{}
	}
	counts[category][v]++
	if v != truePositive && v != trueNegative {
		t.Errorf("%s: %s: %s: %s", category, name, v, text)
	}
}

// table returns the table of docs/races.md.
func table() string {
	var b strings.Builder
	b.WriteString("| programs | racy, found | racy, missed | clean, no report | clean, reported |\n|---|---|---|---|---|\n")
	sum := map[verdict]int{}
	row := func(name string, n map[verdict]int) {
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d |\n", name, n[truePositive], n[falseNegative], n[trueNegative], n[falsePositive])
	}
	for _, c := range categories {
		row(c, counts[c])
		for v, n := range counts[c] {
			sum[v] += n
		}
	}
	row("**all**", sum)
	return b.String()
}

// The programs give the results that the document has.
func TestPrograms(t *testing.T) {
	t.Run("written", testWritten)
	t.Run("generated", testGenerated)
	const file, begin, end = "../../docs/races.md", "<!-- results -->\n", "<!-- end of results -->"
	text := string(must.Get(os.ReadFile(file))(t))
	before, rest, found := strings.Cut(text, begin)
	old, after, closed := strings.Cut(rest, end)
	switch {
	case !found || !closed:
		t.Errorf("%s has no place for the results", file)
	case old == table():
	case *update:
		must.Do(t, os.WriteFile(file, []byte(before+begin+table()+end+after), 0o644))
	default:
		t.Errorf("%s has other results; -update writes them:\n%s", file, table())
	}
}
