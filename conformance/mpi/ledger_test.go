package mpi_test

import (
	"flag"
	"testing"

	"github.com/fabrictest/fabrictest/conformance"
	cases "github.com/fabrictest/fabrictest/conformance/mpi"
	"github.com/fabrictest/fabrictest/internal/must"
)

var update = flag.Bool("update", false, "write the cases into ledger.yaml")

func TestLedgerAgreesWithTheCases(t *testing.T) {
	doc := must.Get(cases.Ledger())(t)
	docs, covered := []*conformance.Document{doc}, conformance.CasesByRow(cases.Cases())
	for _, wrong := range conformance.WrongCitations(docs, covered) {
		t.Error(wrong)
	}
	for row := range doc.Rows() {
		if row.Untestable == "" && len(covered[row.ID]) == 0 {
			t.Errorf("no case checks %s: %s", row.ID, row.Text)
		}
	}
	switch {
	case !*update:
		for _, outdated := range conformance.OutdatedRows(docs, covered) {
			t.Errorf("%s: run go test ./conformance/mpi -run Ledger -update", outdated)
		}
	case !t.Failed():
		must.Do(t, conformance.WriteCases("ledger.yaml", covered))
	}
}
