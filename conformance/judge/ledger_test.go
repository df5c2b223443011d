package judge_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/judge"
	"github.com/fabrictest/fabrictest/internal/must"
)

const (
	ledgerDir = "../ledger"
	// coverageFile has the coverage of the ledger, which must not decrease.
	coverageFile = ledgerDir + "/coverage.txt"
)

func TestLedgerAgreesWithTheCases(t *testing.T) {
	var cases []conformance.Case
	for _, s := range judge.Suites() {
		cases = append(cases, s.Cases...)
	}
	covered := conformance.CasesByRow(cases)
	docs := must.Get(conformance.Ledger())(t)
	for _, wrong := range conformance.WrongCitations(docs, covered) {
		t.Error(wrong)
	}
	if t.Failed() {
		return // -update cannot correct these
	}
	if update.on {
		writeDown(t, docs, covered)
		return
	}
	for _, outdated := range conformance.OutdatedRows(docs, covered) {
		t.Errorf("%s: run go test ./conformance/judge -update", outdated)
	}
}

func TestCoverageDoesNotFall(t *testing.T) {
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
