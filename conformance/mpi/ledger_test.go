package mpi_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	cases "github.com/fabrictest/fabrictest/conformance/mpi"
)

var update = flag.Bool("update", false, "write the cases into ledger.yaml")

// covered is which cases check each row, by what they say.
func covered() map[string][]string {
	rows := make(map[string][]string)
	for _, c := range cases.Cases() {
		for _, r := range c.Cite.Rows {
			rows[r] = append(rows[r], c.ID)
		}
	}
	for _, ids := range rows {
		slices.Sort(ids)
	}
	return rows
}

func TestLedgerAgreesWithTheCases(t *testing.T) {
	doc, err := cases.Ledger()
	if err != nil {
		t.Fatal(err)
	}
	by := covered()
	known := make(map[string]bool)
	for row := range doc.Rows() {
		known[row.ID] = true
		switch {
		case row.Untestable != "" && len(by[row.ID]) > 0:
			t.Errorf("%s is untestable, and %v test it", row.ID, by[row.ID])
		case row.Untestable == "" && len(by[row.ID]) == 0:
			t.Errorf("no case checks %s: %s", row.ID, row.Text)
		case !*update && !slices.Equal(row.Cases, by[row.ID]):
			t.Errorf("%s has the cases %v, and the cases say %v: run go test ./conformance/mpi -run Ledger -update", row.ID, row.Cases, by[row.ID])
		}
	}
	for _, c := range cases.Cases() {
		for _, r := range c.Cite.Rows {
			if !known[r] {
				t.Errorf("%s cites %s, which the ledger does not have", c.ID, r)
			}
		}
		first, _, _ := strings.Cut(strings.TrimPrefix(c.Cite.Rows[0], "mpi/"), "/")
		if c.Cite.Section != first {
			t.Errorf("%s cites section %s, and its first row is of %s", c.ID, c.Cite.Section, first)
		}
	}
	if *update && !t.Failed() {
		writeCases(t, by)
	}
}

// writeCases writes them below their rows.
func writeCases(t *testing.T, by map[string][]string) {
	t.Helper()
	text, err := os.ReadFile("ledger.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	var due []string
	flush := func() {
		for i, id := range due {
			if i == 0 {
				fmt.Fprintln(&out, "        cases:")
			}
			fmt.Fprintln(&out, "          - "+id)
		}
		due = nil
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		id, isRow := strings.CutPrefix(line, "      - id: ")
		if isRow || strings.HasPrefix(line, "  - title:") {
			flush()
			due = by[id]
		}
		if line == "        cases:" || strings.HasPrefix(line, "          - ") {
			continue
		}
		fmt.Fprintln(&out, line)
	}
	flush()
	if err := os.WriteFile("ledger.yaml", out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}
