package judge

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/conformance/ledger"
	"github.com/fabrictest/fabrictest/internal/cmdline"
)

// DocumentKeys returns the keys of the ledger's documents.
func DocumentKeys() (keys []string) {
	docs, _ := ledger.Documents()
	for _, d := range docs {
		keys = append(keys, d.Key)
	}
	return keys
}

// WriteCoverage prints how many rows of the ledger the cases cover, by document; of the
// named documents by section.
func WriteCoverage(w io.Writer, only []string) error {
	docs, err := ledger.Documents()
	if err != nil {
		return err
	}
	for _, name := range only {
		if !slices.Contains(DocumentKeys(), name) {
			return cmdline.Errorf("the ledger has no document %q%s: it has %s", name, cmdline.Guess(name, DocumentKeys()), strings.Join(DocumentKeys(), ", "))
		}
	}
	cases := casesByRow(Suites())
	var b strings.Builder
	fmt.Fprintf(&b, "%-58s %5s %8s %11s %5s %9s\n", "", "rows", "covered", "untestable", "open", "MUSTs")
	line := func(title string, c ledger.Coverage) {
		fmt.Fprintf(&b, "%-58s %5d %8d %11d %5d %9s\n", cutTo(title, 58), c.Rows, c.Covered, c.Untestable, c.Open(), fmt.Sprintf("%d/%d", c.MustsCovered, c.Musts))
	}
	var all ledger.Coverage
	for _, d := range docs {
		if len(only) > 0 && !slices.Contains(only, d.Key) {
			continue
		}
		for row := range d.Rows() {
			row.Cases = cases[row.ID] // not those of the ledger file
		}
		all = all.Add(d.Coverage())
		line(d.Key+"  "+d.Title, d.Coverage())
		for i := range d.Sections {
			if len(only) > 0 {
				line("  "+d.Sections[i].Title, d.Sections[i].Coverage())
			}
		}
	}
	line("all", all)
	if all.Musts > 0 {
		fmt.Fprintf(&b, "\n%.1f %% of the testable MUSTs are covered.\n", 100*float64(all.MustsCovered)/float64(all.Musts))
	}
	_, err = io.WriteString(w, b.String())
	return err
}

// cutTo shortens a text to n characters.
func cutTo(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n-1]) + "…"
}
