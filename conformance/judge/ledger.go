package judge

import (
	"slices"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/ledger"
	"github.com/fabrictest/fabrictest/report/conform"
)

// Documents returns the ledger for reports, with the cases that cover each row.
func Documents() (docs []conform.Document, err error) {
	all, err := ledger.Documents()
	if err != nil {
		return nil, err
	}
	cases := casesByRow(Suites())
	for _, d := range all {
		doc := conform.Document{Key: d.Key, Title: d.Title, Revision: d.Revision}
		for i := range d.Sections {
			s := conform.Section{Title: d.Sections[i].Title}
			for _, r := range d.Sections[i].Rows {
				s.Rows = append(s.Rows, conform.Row{ID: r.ID, Level: r.Level, Clause: r.Clause, Text: r.Text, Cases: cases[r.ID], Untestable: r.Untestable})
			}
			doc.Sections = append(doc.Sections, s)
		}
		docs = append(docs, doc)
	}
	return docs, nil
}

// casesByRow returns the cases that cover each row of the ledger.
func casesByRow(all []*conformance.Suite) map[string][]string {
	rows := make(map[string][]string)
	for _, s := range all {
		for i := range s.Cases {
			for _, r := range s.Cases[i].Cite.Rows {
				rows[r] = append(rows[r], s.Cases[i].ID)
			}
		}
	}
	for _, ids := range rows {
		slices.Sort(ids)
	}
	return rows
}

// rowsByID returns the rows of the ledger by their IDs.
func rowsByID() (map[string]ledger.Row, error) {
	docs, err := ledger.Documents()
	if err != nil {
		return nil, err
	}
	rows := make(map[string]ledger.Row)
	for _, d := range docs {
		for r := range d.Rows() {
			rows[r.ID] = *r
		}
	}
	return rows, nil
}
