package suites_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/conformance/ledger"
	"github.com/fabrictest/fabrictest/conformance/suites"
)

var update = flag.Bool("update", false, "write the cases into the ledger, and how much of it they cover")

const ledgerDir = "../ledger"

// casesByRow is which cases cover each row, by what the cases say.
func casesByRow() map[string][]string {
	rows := make(map[string][]string)
	for _, s := range suites.All() {
		for _, c := range s.Cases {
			for _, r := range c.Cite.Rows {
				rows[r] = append(rows[r], c.ID)
			}
		}
	}
	for _, ids := range rows {
		slices.Sort(ids)
	}
	return rows
}

func TestLedgerAgreesWithTheCases(t *testing.T) {
	covered := casesByRow()
	docs, err := ledger.Documents()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		for _, d := range docs {
			writeCases(t, filepath.Join(ledgerDir, d.Key+".yaml"), covered)
		}
		return
	}
	known := make(map[string]bool)
	for _, d := range docs {
		for row := range d.Rows() {
			known[row.ID] = true
			if want := covered[row.ID]; !slices.Equal(row.Cases, want) {
				t.Errorf("%s has the cases %v, and the cases say %v: run go test ./conformance/suites -update", row.ID, row.Cases, want)
			}
			if row.Untestable != "" && len(covered[row.ID]) > 0 {
				t.Errorf("%s is untestable, and %v test it", row.ID, covered[row.ID])
			}
		}
	}
	for row, ids := range covered {
		if !known[row] {
			t.Errorf("there is no row %s, which %v cover", row, ids)
		}
	}
}

// writeCases puts the cases of each row behind its text. The rest of the file stays
// as people wrote it.
func writeCases(t *testing.T, file string, covered map[string][]string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const (
		rowMark  = "      - id: "
		caseMark = "        cases:"
		itemMark = "          - "
	)
	var out bytes.Buffer
	var pending []string
	flush := func() {
		if len(pending) > 0 {
			fmt.Fprintln(&out, caseMark)
		}
		for _, id := range pending {
			fmt.Fprintln(&out, itemMark+id)
		}
		pending = nil
	}
	inCases := false
	for line := range strings.Lines(string(b)) {
		line = strings.TrimRight(line, "\n")
		id, isRow := strings.CutPrefix(line, rowMark)
		switch {
		case isRow, strings.HasPrefix(line, "  - title:"):
			flush()
			inCases, pending = false, covered[strings.Trim(id, `"`)]
		case line == caseMark:
			inCases = true
		}
		if inCases && (line == caseMark || strings.HasPrefix(line, itemMark)) {
			continue
		}
		inCases = false
		fmt.Fprintln(&out, line)
	}
	flush()
	if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// The file says how much of the ledger is covered. It may only grow.
const coverageFile = ledgerDir + "/coverage.txt"

func TestCoverageDoesNotFall(t *testing.T) {
	docs, err := ledger.Read(os.DirFS(ledgerDir)) // as the test before may have left it
	if err != nil {
		t.Fatal(err)
	}
	var now strings.Builder
	var all ledger.Coverage
	fmt.Fprintf(&now, "%-16s %5s %8s %11s %5s %8s\n", "document", "rows", "covered", "untestable", "open", "MUSTs")
	line := func(name string, c ledger.Coverage) {
		fmt.Fprintf(&now, "%-16s %5d %8d %11d %5d %4d/%d\n", name, c.Rows, c.Covered, c.Untestable, c.Open(), c.MustsCovered, c.Musts)
	}
	for _, d := range docs {
		c := d.Coverage()
		all = all.Add(c)
		line(d.Key, c)
	}
	line("all", all)
	t.Logf("coverage of the ledger:\n%s", now.String())
	if *update {
		if err := os.WriteFile(coverageFile, []byte(now.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	was, err := os.ReadFile(coverageFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(was) != now.String() {
		t.Errorf("the coverage was\n%sIf it has grown, keep that by: go test ./conformance/suites -update. If it has fallen, a case is missing.", was)
	}
	if share := float64(all.MustsCovered) / float64(all.Musts); share < 0.9 {
		t.Errorf("%.0f %% of the testable MUSTs are covered, want 90 %%", 100*share)
	}
}
