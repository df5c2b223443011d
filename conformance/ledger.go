package conformance

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"regexp"
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
	// IDs are the public IDs of compliance statements and test assertions that the row covers, in
	// whole or in part: "C9-88" (a statement of the specification), "CA17-24" (of its annex A17),
	// "V1C09-027#05" (the fifth assertion that a test specification derives from C9-27).
	IDs []string `yaml:"ids,omitempty,flow"`
	// Text is the requirement.
	Text string `yaml:"text"`
	// IfClaimed limits the requirement to devices that claim the feature.
	IfClaimed bool `yaml:"if_claimed,omitempty"`
	// Cases are the IDs of the cases that check it, written by go test -update.
	Cases []string `yaml:"cases,omitempty"`
	// Untestable is the reason why no case can check it.
	Untestable string `yaml:"untestable,omitempty"`
}

// Ledger reads the ledger of requirements for RDMA devices: one document per specification, such as
// an RFC.
func Ledger() ([]*Document, error) {
	dir, err := fs.Sub(ledgerFiles, "ledger")
	if err != nil {
		return nil, err
	}
	return ReadLedger(dir)
}

// ReadLedger reads a ledger of requirements from the YAML files in dir, one document per file. It
// returns an error if two rows have the same ID.
func ReadLedger(dir fs.FS) ([]*Document, error) {
	names, err := fs.Glob(dir, "*.yaml")
	if err != nil {
		return nil, err
	}
	var docs []*Document
	fileOfRow := make(map[string]string)
	for _, name := range names {
		b, err := fs.ReadFile(dir, name)
		if err != nil {
			return nil, err
		}
		doc, err := parseDocument(strings.TrimSuffix(name, ".yaml"), b)
		if err != nil {
			return nil, fmt.Errorf("ledger %s: %w", name, err)
		}
		for row := range doc.Rows() {
			if other, taken := fileOfRow[row.ID]; taken {
				return nil, fmt.Errorf("ledger %s: row %s is in %s already", name, row.ID, other)
			}
			fileOfRow[row.ID] = name
		}
		docs = append(docs, doc)
	}
	return docs, nil
}

// parseDocument parses the YAML of one file of a ledger, and checks its rows. key is the name
// of the file without its extension.
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

// publicID matches the IDs of compliance statements, "CA17-24" and "o10-37.2.30", and of the
// assertions that test specifications derive from them, "V1C09-027#05".
var publicID = regexp.MustCompile(`^([Co]A?\d+-\d+(\.\d+)*|[Vv]1[Cc]\d+-\d+(\.\d+)*#\d+(\.\d+)*)$`)

// check returns an error if a field of the row, a requirement, is missing or contradicts another.
func (r *Row) check() error {
	switch {
	case r.ID == "" || r.Text == "":
		return fmt.Errorf("a row needs the keys \"id\" and \"text\"")
	case !slices.Contains([]string{"MUST", "SHOULD", "MAY"}, r.Level):
		return fmt.Errorf("level %q is none of MUST, SHOULD, MAY", r.Level)
	case r.Untestable != "" && len(r.Cases) > 0:
		return fmt.Errorf("an untestable row has cases")
	}
	for i, id := range r.IDs {
		if !publicID.MatchString(id) || slices.Contains(r.IDs[:i], id) {
			return fmt.Errorf("ids: %q is a duplicate, or no ID of a compliance statement", id)
		}
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

// Open returns the number of rows with neither a case nor a reason why none can check them.
func (c Coverage) Open() int { return c.Rows - c.Covered - c.Untestable }

// Add returns the sum of c and d.
func (c Coverage) Add(d Coverage) Coverage {
	return Coverage{
		c.Rows + d.Rows, c.Covered + d.Covered, c.Untestable + d.Untestable,
		c.Musts + d.Musts, c.MustsCovered + d.MustsCovered,
	}
}

// Coverage counts the rows (requirements) of the section: all, those with a case, and the
// untestable ones. It counts the testable rows of level MUST separately: all, and those with a case.
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

// Coverage returns the sum of the coverage of all sections.
func (d *Document) Coverage() (c Coverage) {
	for i := range d.Sections {
		c = c.Add(d.Sections[i].Coverage())
	}
	return c
}

// CasesByRow returns, by the ID of each cited row (requirement), the sorted IDs of the cases that
// cite it.
func CasesByRow[Body any](cases []CaseOf[Body]) map[string][]string {
	casesByRow := make(map[string][]string)
	for i := range cases {
		for _, row := range cases[i].Cite.Rows {
			casesByRow[row] = append(casesByRow[row], cases[i].ID)
		}
	}
	for _, ids := range casesByRow {
		slices.Sort(ids)
	}
	return casesByRow
}
