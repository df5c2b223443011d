package conformance

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// Coverage counts the rows of a part of the ledger.
type Coverage struct {
	Rows       int // all rows
	Covered    int // rows with a case
	Untestable int // rows with a reason why no case can check them
	// Musts and MustsCovered count the testable rows of level MUST.
	Musts, MustsCovered int
}

// Open is the number of rows with neither case nor reason.
func (c Coverage) Open() int { return c.Rows - c.Covered - c.Untestable }

// Add returns the sum of c and d.
func (c Coverage) Add(d Coverage) Coverage {
	return Coverage{
		c.Rows + d.Rows, c.Covered + d.Covered, c.Untestable + d.Untestable,
		c.Musts + d.Musts, c.MustsCovered + d.MustsCovered,
	}
}

// Coverage counts the requirements of a section by how cases cover them.
func (s *Section) Coverage() (c Coverage) {
	for i := range s.Rows {
		r := &s.Rows[i]
		covered := len(r.Cases) > 0
		c.Rows++
		switch {
		case covered:
			c.Covered++
		case r.Untestable != "":
			c.Untestable++
			continue
		}
		if r.Level == "MUST" {
			c.Musts++
			if covered {
				c.MustsCovered++
			}
		}
	}
	return c
}

// Coverage counts the requirements of the document by how cases cover them.
func (d *Document) Coverage() (c Coverage) {
	for i := range d.Sections {
		c = c.Add(d.Sections[i].Coverage())
	}
	return c
}

// CasesByRow returns the IDs of the cases that cite each row, in order.
func CasesByRow[Body any](cases []CaseOf[Body]) map[string][]string {
	rows := make(map[string][]string)
	for i := range cases {
		for _, r := range cases[i].Cite.Rows {
			rows[r] = append(rows[r], cases[i].ID)
		}
	}
	for _, ids := range rows {
		slices.Sort(ids)
	}
	return rows
}

// WrongCitations lists citations of unknown and of untestable rows.
func WrongCitations(docs []*Document, cases map[string][]string) (wrong []string) {
	known := make(map[string]bool)
	for _, d := range docs {
		for row := range d.Rows() {
			known[row.ID] = true
			if row.Untestable != "" && len(cases[row.ID]) > 0 {
				wrong = append(wrong, fmt.Sprintf("%s is untestable, and %v cite it", row.ID, cases[row.ID]))
			}
		}
	}
	for row, ids := range cases {
		if !known[row] {
			wrong = append(wrong, fmt.Sprintf("unknown row %s, which %v cite", row, ids))
		}
	}
	slices.Sort(wrong)
	return wrong
}

// OutdatedRows lists the rows whose cases are not those that cite them.
func OutdatedRows(docs []*Document, cases map[string][]string) (outdated []string) {
	for _, d := range docs {
		for row := range d.Rows() {
			if want := cases[row.ID]; !slices.Equal(row.Cases, want) {
				outdated = append(outdated, fmt.Sprintf("%s lists the cases %v, and %v cite it", row.ID, row.Cases, want))
			}
		}
	}
	return outdated
}

// WriteCases writes the cases of each row after its text, and keeps the rest of the file.
func WriteCases(file string, cases map[string][]string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	const (
		rowMark  = "      - id: "
		caseMark = "        cases:"
		itemMark = "          - "
	)
	var out []string
	var pending []string
	flush := func() {
		if len(pending) > 0 {
			out = append(out, caseMark)
		}
		for _, id := range pending {
			out = append(out, itemMark+id)
		}
		pending = nil
	}
	inCases := false
	for line := range strings.SplitSeq(strings.TrimSuffix(string(b), "\n"), "\n") {
		id, isRow := strings.CutPrefix(line, rowMark)
		switch {
		case isRow, strings.HasPrefix(line, "  - title:"):
			flush()
			inCases, pending = false, cases[strings.Trim(id, `"`)]
		case line == caseMark:
			inCases = true
		}
		if inCases && (line == caseMark || strings.HasPrefix(line, itemMark)) {
			continue
		}
		inCases = false
		out = append(out, line)
	}
	flush()
	return os.WriteFile(file, []byte(strings.Join(out, "\n")+"\n"), 0o644)
}
