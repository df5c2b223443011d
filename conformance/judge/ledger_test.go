package judge_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/mpi"
	"github.com/fabrictest/fabrictest/conformance/roce"
	"github.com/fabrictest/fabrictest/internal/must"
)

const (
	ledgerDir = "../ledger"
	mpiDir    = "../mpi" // has the ledger of MPI
	// coverageFile has the coverage of the ledger, which must not decrease.
	coverageFile = ledgerDir + "/coverage.txt"
)

func TestLedgerListsCases(t *testing.T) {
	docs, covered := must.Get(conformance.Ledger())(t), conformance.CasesByRow(allCases())
	mpiDocs, mpiCovered := must.Get(conformance.ReadLedger(os.DirFS(mpiDir)))(t), conformance.CasesByRow(mpi.Cases())
	for _, wrong := range slices.Concat(wrongCitations(docs, covered), wrongCitations(mpiDocs, mpiCovered)) {
		t.Error(wrong)
	}
	for row := range mpiDocs[0].Rows() {
		if row.Untestable == "" && len(mpiCovered[row.ID]) == 0 {
			t.Errorf("no case checks %s: %s", row.ID, row.Text)
		}
	}
	switch {
	case t.Failed(): // -update cannot correct these
	case update.on:
		updateLedger(t, docs, covered)
		writeCases(t, filepath.Join(mpiDir, "ledger.yaml"), mpiCovered)
	default:
		maps.Copy(covered, mpiCovered)
		for _, d := range append(docs, mpiDocs...) {
			for row := range d.Rows() {
				if want := covered[row.ID]; !slices.Equal(row.Cases, want) {
					t.Errorf("%s lists the cases %v, and %v cite it: run go test ./conformance/judge -update", row.ID, row.Cases, want)
				}
			}
		}
	}
}

// A citation names a section, a public ID if the ledger has one for the row, or the row.
func TestCitationsNameSectionOrRow(t *testing.T) {
	for _, c := range allCases() {
		for _, s := range []string{c.Cite.String(), c.Cite.Short()} {
			if s == conformance.IBTA || c.Cite.Section == "" && c.Cite.Doc == conformance.IBTA && !strings.Contains(s, c.Cite.Rows[0]) {
				t.Errorf("%s cites %q, without a section or a row", c.ID, s)
			}
		}
	}
	rows := make(map[string]*conformance.Row)
	for _, d := range must.Get(conformance.Ledger())(t) {
		for row := range d.Rows() {
			rows[row.ID] = row
		}
	}
	for _, c := range roce.Suite().Cases {
		if row := rows[c.Cite.Rows[0]]; row != nil && len(row.IDs) > 0 && c.Cite.Section == "" {
			t.Errorf("%s cites no section: %s has the public IDs %v", c.ID, row.ID, row.IDs)
		}
	}
}

// wrongCitations lists citations of unknown and of untestable rows.
func wrongCitations(docs []*conformance.Document, casesByRow map[string][]string) (wrong []string) {
	known := make(map[string]bool)
	for _, d := range docs {
		for row := range d.Rows() {
			known[row.ID] = true
			if row.Untestable != "" && len(casesByRow[row.ID]) > 0 {
				wrong = append(wrong, fmt.Sprintf("%s is untestable, and %v cite it", row.ID, casesByRow[row.ID]))
			}
		}
	}
	for row, ids := range casesByRow {
		if !known[row] {
			wrong = append(wrong, fmt.Sprintf("%v cite %s, which is no row of the ledger: functions such as ibta add the part before the first slash", ids, row))
		}
	}
	return wrong
}

func TestCoverageDoesNotDecrease(t *testing.T) {
	docs := must.Get(conformance.ReadLedger(os.DirFS(ledgerDir)))(t) // the previous test may have updated it
	now, all := coverage(docs)
	t.Logf("coverage of the ledger:\n%s", now)
	was := must.Get(os.ReadFile(coverageFile))(t)
	if string(was) != now {
		t.Errorf("the coverage was\n%sIf it has increased, run go test ./conformance/judge -update. If it has decreased, a case is missing.", was)
	}
	if all.MustsCovered < all.Musts {
		t.Errorf("%d of %d testable MUSTs are covered: each of the others needs a case, or a reason why none can check it", all.MustsCovered, all.Musts)
	}
}

// coverage returns the content of the coverage file, and the total.
func coverage(docs []*conformance.Document) (table string, all conformance.Coverage) {
	var b strings.Builder
	fmt.Fprintf(&b, "%-16s %5s %8s %11s %5s %8s\n", "document", "rows", "covered", "untestable", "open", "MUSTs")
	line := func(name string, c conformance.Coverage) {
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
