package conformance

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// The ledger lists the requirements of the specifications: one row for every requirement
// that is visible from outside a device, paraphrased, with the cases that check it or the
// reason why none can. Cases cite the rows that they cover ([Cite].Rows); the files repeat
// the cases for readers, and a test of package judge compares the two.
//
//go:embed ledger/*.yaml ledger/deviations/*.yaml
var ledgerFiles embed.FS

// Document is a specification.
type Document struct {
	// Key is the name of its file.
	Key string `yaml:"-"`
	// Title is its title, Revision the revision that the rows are from.
	Title    string    `yaml:"title"`
	Revision string    `yaml:"revision"`
	Sections []Section `yaml:"sections"`
}

// Section is a section of a document.
type Section struct {
	Title string `yaml:"title"`
	Rows  []Row  `yaml:"rows"`
}

// Row is a requirement.
type Row struct {
	// ID never changes: "roce/rc/psn/9", "rfc5044/4.1/3".
	ID    string `yaml:"id"`
	Level string `yaml:"level"`
	// Clause is its place in the document; empty if not publicly known.
	Clause string `yaml:"clause,omitempty"`
	// Text is the requirement.
	Text string `yaml:"text"`
	// IfClaimed limits the requirement to devices that claim the feature.
	IfClaimed bool `yaml:"if_claimed,omitempty"`
	// Cases are the IDs of the cases that check it, written by go test -update.
	Cases []string `yaml:"cases,omitempty"`
	// Untestable is the reason why no case can check it.
	Untestable string `yaml:"untestable,omitempty"`
}

// Ledger reads the ledger of the devices' specifications.
func Ledger() ([]*Document, error) {
	dir, err := fs.Sub(ledgerFiles, "ledger")
	if err != nil {
		return nil, err
	}
	return ReadLedger(dir)
}

// ReadLedger reads a ledger from the YAML files of a file system.
func ReadLedger(from fs.FS) ([]*Document, error) {
	names, err := fs.Glob(from, "*.yaml")
	if err != nil {
		return nil, err
	}
	var docs []*Document
	seen := make(map[string]string)
	for _, name := range names {
		b, err := fs.ReadFile(from, name)
		if err != nil {
			return nil, err
		}
		doc, err := parseDocument(strings.TrimSuffix(name, ".yaml"), b)
		if err != nil {
			return nil, fmt.Errorf("ledger %s: %w", name, err)
		}
		for row := range doc.Rows() {
			if other, taken := seen[row.ID]; taken {
				return nil, fmt.Errorf("ledger %s: row %s is in %s already", name, row.ID, other)
			}
			seen[row.ID] = name
		}
		docs = append(docs, doc)
	}
	return docs, nil
}

// parseDocument reads one file of a ledger, and checks its rows.
func parseDocument(key string, b []byte) (*Document, error) {
	doc := &Document{Key: key}
	dec := yaml.NewDecoder(bytes.NewReader(b))
	dec.KnownFields(true)
	if err := dec.Decode(doc); err != nil {
		return nil, err
	}
	for row := range doc.Rows() {
		if err := row.check(); err != nil {
			return nil, fmt.Errorf("row %s: %w", row.ID, err)
		}
	}
	return doc, nil
}

// Rows yields the rows of all sections.
func (d *Document) Rows() func(func(*Row) bool) {
	return func(yield func(*Row) bool) {
		for i := range d.Sections {
			for j := range d.Sections[i].Rows {
				if !yield(&d.Sections[i].Rows[j]) {
					return
				}
			}
		}
	}
}

func (r *Row) check() error {
	switch {
	case r.ID == "" || r.Text == "":
		return fmt.Errorf("a row needs an id and a text")
	case !slices.Contains([]string{"MUST", "SHOULD", "MAY"}, r.Level):
		return fmt.Errorf("level %q is none of MUST, SHOULD, MAY", r.Level)
	case r.Untestable != "" && len(r.Cases) > 0:
		return fmt.Errorf("an untestable row has cases")
	}
	return nil
}

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
