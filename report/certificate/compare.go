package certificate

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/fabrictest/fabrictest/report/conform"
)

// Comparison compares devices clause by clause.
type Comparison struct {
	Version int      `json:"version"` // version of this layout
	Columns []Column `json:"columns"`
	// Clauses are the clauses of all columns, in the order of the documents.
	Clauses []Compared `json:"clauses"`
}

// Column is a device of a comparison.
type Column struct {
	// Name is the unique name of the column, as in rxe-6.12.
	Name      string  `json:"name"`
	Device    string  `json:"device"`             // name on its host
	Transport string  `json:"transport"`          // RoCEv2, iWARP or datagram-iWARP
	Kernel    string  `json:"kernel,omitempty"`   // kernel of its host, if it matters
	Firmware  string  `json:"firmware,omitempty"` // firmware version reported by the device
	From      string  `json:"from"`               // result folder
	Page      string  `json:"page"`               // report page in that folder
	Tool      string  `json:"tool"`               // version of fabrictest
	Tier      string  `json:"tier"`               // sim, netns or wire
	Outcome   Outcome `json:"outcome,omitempty"`  // outcome of the certificate, if there is one
	Counts    []Count `json:"counts"`
}

// Compared is a requirement with its state on each device.
type Compared struct {
	Row      string `json:"row"` // ID of the clause: its row in the ledger
	Document string `json:"document"`
	Section  string `json:"section"`
	Level    string `json:"level"`
	Clause   string `json:"clause,omitempty"`
	// IDs are the public IDs of compliance statements and test assertions that it covers.
	IDs  []string `json:"ids,omitempty"`
	Text string   `json:"text"`
	// States are in the order of the columns; empty if the document does not apply to the device.
	States []State `json:"states"`
	// Cases are the cases that were run on any device.
	Cases []string `json:"cases,omitempty"`
	// Remarks explain the states of clauses that are not met or not supported.
	Remarks []Remark `json:"remarks,omitempty"`
}

// Place returns the section of the clause with its public IDs.
func (c *Compared) Place() string { return place(c.Clause, c.IDs) }

// Remark explains why a case did not pass on a device.
type Remark struct {
	Column  int             `json:"column"` // index in Comparison.Columns
	Case    string          `json:"case"`
	Verdict conform.Verdict `json:"verdict"`
	Reason  string          `json:"reason"`
	// Deviation is the reason of the deviation on record.
	Deviation string `json:"deviation,omitempty"`
}

// Differs reports whether some devices meet the clause and others do not. A known deviation
// counts as not met, and a stale one, which the device no longer has, as met.
func (c *Compared) Differs() bool {
	met, violated := false, false
	for _, s := range c.States {
		met = met || s == Pass || s == Stale
		violated = violated || s == Fail || s == Deviates
	}
	return met && violated
}

// HasState reports whether the clause has a state on the device of a column.
func (c *Compared) HasState(column int) bool { return c.States[column] != "" }

// testedDevice is a device of a result folder.
type testedDevice struct {
	run  conform.Run  // results of this device only
	cert *Certificate // nil for a folder of conform
	dir  string       // the folder
}

// Compare reads result folders of certify or conform, each with one or more devices, and
// compares the devices. Each device is a column of the comparison.
func Compare(dirs []string) (*Comparison, error) {
	c := &Comparison{Version: Version}
	index := make(map[string]int) // of a clause in c.Clauses, by clause ID
	for _, dir := range dirs {
		run, cert, err := readRun(dir)
		if err != nil {
			return nil, err
		}
		for i := range run.Devices {
			d := &testedDevice{run: *run, cert: cert, dir: dir}
			d.run.Devices = run.Devices[i : i+1]
			c.addDevice(d, index)
		}
	}
	c.makeNamesUnique()
	c.markNotAsked()
	for column := range c.Columns {
		c.Columns[column].Counts = c.count(column)
	}
	return c, nil
}

// markNotAsked sets NotAsked where a clause has no state on a device, but another clause of the
// same document has one: the device's run, perhaps of another version, did not list the clause.
func (c *Comparison) markNotAsked() {
	type pair struct {
		column   int
		document string
	}
	applies := make(map[pair]bool) // some clause of the document has a state
	for i := range c.Clauses {
		for column := range c.Columns {
			if clause := &c.Clauses[i]; clause.HasState(column) {
				applies[pair{column, clause.Document}] = true
			}
		}
	}
	for i := range c.Clauses {
		for column := range c.Columns {
			if clause := &c.Clauses[i]; !clause.HasState(column) && applies[pair{column, clause.Document}] {
				clause.States[column] = NotAsked
			}
		}
	}
}

// count returns the numbers of the clauses of the device in a column, by level and state.
func (c *Comparison) count(column int) []Count {
	found := make([]Clause, 0, len(c.Clauses))
	for i := range c.Clauses {
		if clause := &c.Clauses[i]; clause.HasState(column) {
			found = append(found, Clause{Level: clause.Level, State: clause.States[column]})
		}
	}
	return counts(found)
}

// readRun reads the results in a folder of certify or conform; the certificate is nil for conform.
func readRun(dir string) (*conform.Run, *Certificate, error) {
	cert, err := Read(dir)
	switch {
	case err == nil:
		return &cert.Run, cert, nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, nil, err
	}
	run, err := conform.ReadFile(filepath.Join(dir, conform.ResultFile))
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%s has neither %s nor %s: give a folder written by certify or conform", dir, File, conform.ResultFile)
	}
	return run, nil, err
}

// column returns the column of a device without its counts. Its name is the kind of device that
// the certificate names, such as rxe-6.12, or else the device's own name. Its tier is where the
// cases were run: sim, netns or wire.
func (d *testedDevice) column() Column {
	dev := &d.run.Devices[0]
	col := Column{Name: dev.Label(), Device: dev.Name, Transport: dev.Title, From: d.dir, Page: conform.PageFile, Tool: d.run.Tool, Tier: d.run.Tier}
	if d.cert != nil {
		s := &d.cert.Subject
		col.Transport, col.Kernel, col.Firmware, col.Page, col.Outcome = s.Transport, s.Kernel, s.Firmware, PageFile, d.cert.Outcome
		if s.Kind != "" {
			col.Name = s.Kind
		}
	}
	return col
}

// makeNamesUnique adds the name of the folder to equal names of columns, and the number of the
// column to those that are still equal.
func (c *Comparison) makeNamesUnique() {
	countNames := func() map[string]int {
		n := make(map[string]int)
		for i := range c.Columns {
			n[c.Columns[i].Name]++
		}
		return n
	}
	same := countNames()
	for i := range c.Columns {
		if col := &c.Columns[i]; same[col.Name] > 1 {
			col.Name += " of " + filepath.Base(filepath.Clean(col.From))
		}
	}
	same = countNames()
	for i := range c.Columns {
		if col := &c.Columns[i]; same[col.Name] > 1 {
			col.Name += fmt.Sprintf(", column %d", i+1)
		}
	}
}

// addDevice adds a column with the states of a device's clauses, and appends clauses that c does
// not have yet. index has the indexes in c.Clauses by clause ID; addDevice extends it.
func (c *Comparison) addDevice(d *testedDevice, index map[string]int) {
	found := clauses(&d.run)
	column := len(c.Columns)
	c.Columns = append(c.Columns, d.column())
	byID := make(map[string]*Clause, len(found))
	for i := range found {
		byID[found[i].Row] = &found[i]
	}
	for i := range c.Clauses {
		c.Clauses[i].States = append(c.Clauses[i].States, "")
	}
	results := make(map[string]*conform.Result)
	for i := range d.run.Devices[0].Results {
		r := &d.run.Devices[0].Results[i]
		results[r.ID] = r
	}
	for i := range d.run.Documents {
		doc := &d.run.Documents[i]
		for j := range doc.Sections {
			for _, row := range doc.Sections[j].Rows {
				clause := byID[row.ID]
				if clause == nil {
					continue // the document does not apply to the device
				}
				k, known := index[row.ID]
				if !known {
					k = len(c.Clauses)
					index[row.ID] = k
					c.Clauses = append(c.Clauses, Compared{
						Row: row.ID, Document: doc.Title, Section: doc.Sections[j].Title, Level: row.Level, Clause: row.Clause, IDs: row.IDs, Text: row.Text,
						States: make([]State, column+1),
					})
				}
				c.Clauses[k].setState(column, clause, results)
			}
		}
	}
}

// setState sets the state of the clause on a device, and adds its cases and remarks on those that
// did not pass. An unsupported case gets a remark only if the clause is unsupported. results has
// the results of the device's cases by ID.
func (c *Compared) setState(column int, clause *Clause, results map[string]*conform.Result) {
	c.States[column] = clause.State
	c.Cases = append(c.Cases, clause.Cases...)
	slices.Sort(c.Cases)
	c.Cases = slices.Compact(c.Cases)
	for _, id := range clause.Cases {
		r := results[id]
		if r.Verdict == conform.Pass || r.Verdict == conform.Unsupported && clause.State != Unsupported {
			continue
		}
		c.Remarks = append(c.Remarks, Remark{column, id, r.Verdict, r.Reason, r.Deviation})
	}
}
