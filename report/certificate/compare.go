package certificate

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fabrictest/fabrictest/report/conform"
)

// Comparison is several devices, clause by clause.
type Comparison struct {
	Version int      `json:"version"` // of this layout
	Columns []Column `json:"columns"`
	// Clauses are those of any column, in the order of the documents.
	Clauses []Compared `json:"clauses"`
}

// Column is a device.
type Column struct {
	Name string `json:"name"` // as in rxe-6.12
	// From is the folder of its results.
	From   string  `json:"from"`
	Tool   string  `json:"tool"` // the version of fabrictest that judged it
	Tier   string  `json:"tier"`
	Counts []Count `json:"counts"`
}

// Compared is a requirement, and what came of it on each device.
type Compared struct {
	Row      string `json:"row"` // of the ledger
	Document string `json:"document"`
	Section  string `json:"section"`
	Level    string `json:"level"`
	Clause   string `json:"clause,omitempty"`
	Text     string `json:"text"`
	// States are in the order of the columns; empty where the document does not apply
	// to a device.
	States []State `json:"states"`
	// Cases say it: those that any of the devices was asked.
	Cases []string `json:"cases,omitempty"`
}

// Differs reports whether devices that were asked behave differently.
func (c *Compared) Differs() bool {
	var first State
	for _, s := range c.States {
		switch {
		case s == "" || s == NotAsked || s == Untestable || s == Unsupported:
		case first == "":
			first = s
		case s != first:
			return true
		}
	}
	return false
}

// Compare reads result folders, of certifications or of conform, each of which may
// hold several devices, and puts them side by side.
func Compare(dirs []string) (*Comparison, error) {
	c := &Comparison{Version: Version}
	at := make(map[string]int) // of rows in c.Clauses
	for _, dir := range dirs {
		run, kind, err := readRun(dir)
		if err != nil {
			return nil, err
		}
		for i := range run.Devices {
			one := *run
			one.Devices = run.Devices[i : i+1]
			c.add(&one, kind, dir, at)
		}
	}
	return c, nil
}

// readRun reads the results of a folder of either kind.
func readRun(dir string) (run *conform.Run, kind string, err error) {
	cert, err := Read(dir)
	switch {
	case err == nil:
		return &cert.Run, cert.Subject.Kind, nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, "", err
	}
	file := filepath.Join(dir, "conformance.json")
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return nil, "", fmt.Errorf("%s has neither %s nor conformance.json: name the folder that certify or conform wrote", dir, File)
	}
	run, err = conform.ReadFile(file)
	return run, "", err
}

// add adds a column.
func (c *Comparison) add(run *conform.Run, kind, dir string, at map[string]int) {
	d := &run.Devices[0]
	name := d.Name
	switch {
	case kind != "":
		name = kind
	case d.As != "":
		name += " as " + d.As
	}
	said := clauses(run)
	column := len(c.Columns)
	c.Columns = append(c.Columns, Column{Name: name, From: dir, Tool: run.Tool, Tier: run.Tier, Counts: counts(said)})
	state := make(map[string]*Clause, len(said))
	for i := range said {
		state[said[i].Row] = &said[i]
	}
	for i := range c.Clauses {
		c.Clauses[i].States = append(c.Clauses[i].States, "")
	}
	for i := range run.Documents {
		doc := &run.Documents[i]
		for j := range doc.Sections {
			for _, row := range doc.Sections[j].Rows {
				s := state[row.ID]
				if s == nil {
					continue
				}
				k, known := at[row.ID]
				if !known {
					k = len(c.Clauses)
					at[row.ID] = k
					c.Clauses = append(c.Clauses, Compared{
						Row: row.ID, Document: doc.Title, Section: doc.Sections[j].Title, Level: row.Level, Clause: row.Clause, Text: row.Text,
						States: make([]State, column+1),
					})
				}
				e := &c.Clauses[k]
				e.States[column] = s.State
				e.Cases = merge(e.Cases, s.Cases)
			}
		}
	}
}
