package suites_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/conformance/ledger"
	"github.com/fabrictest/fabrictest/conformance/suites"
)

const (
	ledgerDir = "../ledger"
	// coverageFile says how much of the ledger is covered. It may only grow.
	coverageFile = ledgerDir + "/coverage.txt"
)

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
	for _, wrong := range misplaced(docs, covered) {
		t.Error(wrong)
	}
	if t.Failed() {
		return // nothing of this can be put right by writing it down
	}
	if update.on {
		writeDown(t, docs, covered)
		return
	}
	for _, d := range docs {
		for row := range d.Rows() {
			if want := covered[row.ID]; !slices.Equal(row.Cases, want) {
				t.Errorf("%s has the cases %v, and the cases say %v: run go test ./conformance/suites -update", row.ID, row.Cases, want)
			}
		}
	}
}

// misplaced tells which cases cover rows that there are not, or that nobody can test.
func misplaced(docs []*ledger.Document, covered map[string][]string) (wrong []string) {
	known := make(map[string]bool)
	for _, d := range docs {
		for row := range d.Rows() {
			known[row.ID] = true
			if row.Untestable != "" && len(covered[row.ID]) > 0 {
				wrong = append(wrong, fmt.Sprintf("%s is untestable, and %v test it", row.ID, covered[row.ID]))
			}
		}
	}
	for row, ids := range covered {
		if !known[row] {
			wrong = append(wrong, fmt.Sprintf("there is no row %s, which %v cover", row, ids))
		}
	}
	slices.Sort(wrong)
	return wrong
}

func TestCoverageDoesNotFall(t *testing.T) {
	docs, err := ledger.Read(os.DirFS(ledgerDir)) // as the test before may have left it
	if err != nil {
		t.Fatal(err)
	}
	now, all := coverage(docs)
	t.Logf("coverage of the ledger:\n%s", now)
	was, err := os.ReadFile(coverageFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(was) != now {
		t.Errorf("the coverage was\n%sIf it has grown, keep that by: go test ./conformance/suites -update. If it has fallen, a case is missing.", was)
	}
	if all.MustsCovered < all.Musts {
		t.Errorf("%d of %d testable MUSTs are covered: the others need a case each, or a reason why none can be", all.MustsCovered, all.Musts)
	}
}

// coverage is how much of the documents is covered, as the file has it, and in all.
func coverage(docs []*ledger.Document) (table string, all ledger.Coverage) {
	var b strings.Builder
	fmt.Fprintf(&b, "%-16s %5s %8s %11s %5s %8s\n", "document", "rows", "covered", "untestable", "open", "MUSTs")
	line := func(name string, c ledger.Coverage) {
		fmt.Fprintf(&b, "%-16s %5d %8d %11d %5d %4d/%d\n", name, c.Rows, c.Covered, c.Untestable, c.Open(), c.MustsCovered, c.Musts)
	}
	for _, d := range docs {
		c := d.Coverage()
		all = all.Add(c)
		line(d.Key, c)
	}
	line("all", all)
	return b.String(), all
}
