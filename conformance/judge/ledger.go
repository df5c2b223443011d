package judge

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/report/conform"
)

// Documents returns the ledger, the list of the standards' requirements, for reports: documents
// with their requirements (rows), and the cases that cover each. It is made once; callers must not
// change it.
func Documents() (docs []conform.Document, err error) { return makeDocuments() }

var makeDocuments = sync.OnceValues(func() (docs []conform.Document, err error) {
	all, err := conformance.Ledger()
	if err != nil {
		return nil, err
	}
	cases := conformance.CasesByRow(casesOf(Suites()))
	for _, d := range all {
		doc := conform.Document{Key: d.Key, Title: d.Title, Revision: d.Revision}
		for i := range d.Sections {
			s := conform.Section{Title: d.Sections[i].Title}
			for _, r := range d.Sections[i].Rows {
				s.Rows = append(s.Rows, conform.Row{
					ID: r.ID, Level: r.Level, Clause: r.Clause, IDs: r.IDs, Text: r.Text, Cases: cases[r.ID], Untestable: r.Untestable,
				})
			}
			doc.Sections = append(doc.Sections, s)
		}
		docs = append(docs, doc)
	}
	return docs, nil
})

// rowsByID returns the rows of the ledger, the requirements, by their IDs.
func rowsByID() (map[string]conformance.Row, error) {
	docs, err := conformance.Ledger()
	if err != nil {
		return nil, err
	}
	rows := make(map[string]conformance.Row)
	for _, d := range docs {
		for r := range d.Rows() {
			rows[r.ID] = *r
		}
	}
	return rows, nil
}

// DocumentKeys returns the keys of the documents (standards) in the ledger, the list of their
// requirements; none if the ledger is invalid.
func DocumentKeys() (keys []string) {
	docs, _ := conformance.Ledger()
	for _, d := range docs {
		keys = append(keys, d.Key)
	}
	return keys
}

// shorten returns a text of at most width characters, of which the last is … if it had more.
func shorten(text string, width int) string {
	if r := []rune(text); len(r) > width {
		return string(r[:width-1]) + "…"
	}
	return text
}

// WriteCoverage prints, by document, how many rows (requirements of the standards) of the ledger
// the cases cover. If keys is not empty, it prints just the documents with these keys, by section.
// The MUSTs are the testable rows of level MUST: those covered, and all.
func WriteCoverage(w io.Writer, keys []string) error {
	docs, err := conformance.Ledger()
	if err != nil {
		return err
	}
	for _, key := range keys {
		if !slices.Contains(DocumentKeys(), key) {
			return cli.Errorf("the ledger has no document %q%s: it has %s", key, cli.Guess(key, DocumentKeys()), strings.Join(DocumentKeys(), ", "))
		}
	}
	cases := conformance.CasesByRow(casesOf(Suites()))
	const width = 58 // of titles
	var b strings.Builder
	fmt.Fprintf(&b, "%-*s %5s %8s %11s %5s %9s\n", width, "", "rows", "covered", "untestable", "open", "MUSTs")
	writeLine := func(title string, c conformance.Coverage) {
		fmt.Fprintf(&b, "%-*s %5d %8d %11d %5d %9s\n", width, shorten(title, width), c.Rows, c.Covered, c.Untestable, c.Open(), fmt.Sprintf("%d/%d", c.MustsCovered, c.Musts))
	}
	var all conformance.Coverage
	for _, d := range docs {
		if len(keys) > 0 && !slices.Contains(keys, d.Key) {
			continue
		}
		for row := range d.Rows() {
			row.Cases = cases[row.ID] // the cases in the ledger file may be out of date
		}
		all = all.Add(d.Coverage())
		writeLine(d.Key+"  "+d.Title, d.Coverage())
		for i := range d.Sections {
			if len(keys) > 0 {
				writeLine("  "+d.Sections[i].Title, d.Sections[i].Coverage())
			}
		}
	}
	writeLine("all", all)
	if all.Musts > 0 {
		fmt.Fprintf(&b, "\n%.1f %% of the testable MUSTs are covered.\n", 100*float64(all.MustsCovered)/float64(all.Musts))
	}
	_, err = io.WriteString(w, b.String())
	return err
}

// maxDeviations bounds the size of a file of deviations, in bytes.
const maxDeviations = 4 << 20

// ReadDeviations reads a file of known deviations of a device from the standards, and returns those
// that apply to a tier ("sim", "netns" or "wire"), by case. Each must name a case of the suites.
func ReadDeviations(file, tier string, all []*conformance.Suite) (map[string]conformance.Deviation, error) {
	b, err := cli.ReadFile(file, maxDeviations)
	if err != nil {
		return nil, cli.Errorf("--deviations: %w", err)
	}
	known, err := conformance.ParseDeviations(b)
	if err != nil {
		return nil, cli.Errorf("--deviations %s: %w", file, err)
	}
	ids := caseIDs(all)
	for id := range known {
		if !slices.Contains(ids, id) {
			return nil, cli.Errorf("--deviations %s: no suite of the device has a case %q%s", file, id, cli.Guess(id, ids))
		}
	}
	return known.On(tier), nil
}
