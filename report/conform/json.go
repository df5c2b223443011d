package conform

import (
	"cmp"
	_ "embed"
	"fmt"
	"io"
	"slices"

	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/report/internal/kit"
)

//go:embed schema.json
var schema []byte

// Schema returns the JSON schema (draft 2020-12) of conformance.json.
func Schema() []byte { return slices.Clone(schema) }

// Files of a result folder.
const (
	ResultFile = "conformance.json"
	PageFile   = kit.PageFile
)

// Write writes a run as JSON. A version of 0 is written as Version.
func Write(w io.Writer, r *Run) error {
	out := *r
	out.Version = cmp.Or(r.Version, Version)
	return kit.WriteJSON(w, &out)
}

// Read reads a run that Write wrote. An unknown version, and an unknown, missing or
// duplicate key are errors; a *report.KeyError names the key.
func Read(r io.Reader) (*Run, error) {
	var run Run
	if err := (kit.Format{Version: Version, Name: "the result of fabrictest conform"}).Read(r, &run); err != nil {
		return nil, err
	}
	if err := run.Check(); err != nil {
		return nil, err
	}
	return &run, nil
}

// ReadFile reads the conformance.json of a run.
func ReadFile(path string) (*Run, error) { return kit.ReadFile(path, Read) }

// WriteFolder writes conformance.json, junit.xml and report.html into a folder, which it
// creates if needed. Each file is replaced atomically, and an error in one does not prevent
// the others. The error is a *report.FolderError; paths has the files that were written.
func WriteFolder(dir string, r *Run) (paths report.Paths, err error) {
	err = kit.WriteAll(dir, kit.Results(r, &paths, ResultFile, Write, WriteJUnit, WriteHTML))
	return paths, err
}

// Check returns a *report.KeyError for an unknown verdict.
func (r *Run) Check() error {
	for i := range r.Devices {
		for j := range r.Devices[i].Results {
			if err := r.Devices[i].Results[j].check(); err != nil {
				err.Key = fmt.Sprintf("devices[%d].results[%d].%s", i, j, err.Key)
				return err
			}
		}
	}
	return nil
}

// check returns an error for an unknown verdict.
func (r *Result) check() *report.KeyError {
	wrong := func(key string, v Verdict) *report.KeyError {
		return &report.KeyError{Key: key, Err: fmt.Errorf("%q is none of %q", v, Verdicts())}
	}
	if !slices.Contains(Verdicts(), r.Verdict) {
		return wrong("verdict", r.Verdict)
	}
	for i, f := range r.Defective {
		if !slices.Contains(Verdicts(), f.Verdict) {
			return wrong(fmt.Sprintf("defective[%d].verdict", i), f.Verdict)
		}
	}
	return nil
}
