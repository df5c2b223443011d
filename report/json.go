package report

import (
	"cmp"
	_ "embed"
	"fmt"
	"io"
	"slices"

	"github.com/fabrictest/fabrictest/report/internal/kit"
)

//go:embed schema.json
var schema []byte

// Schema returns the JSON schema (draft 2020-12) of result.json.
func Schema() []byte { return slices.Clone(schema) }

// ErrVersion is wrapped by the error of Read for an unknown version.
var ErrVersion = kit.ErrVersion

// KeyError is the error for a key of a file.
type KeyError = kit.KeyError

// Write writes a run as JSON. A version of 0 is written as Version.
func Write(w io.Writer, r *Run) error {
	out := *r
	out.Version = cmp.Or(r.Version, Version)
	return kit.WriteJSON(w, &out)
}

// Read reads a result that Write wrote. An unknown version, and an unknown, missing or
// duplicate key are errors; a *KeyError names the key.
func Read(r io.Reader) (*Run, error) {
	var run Run
	if err := (kit.Format{Version: Version, Name: "the result of a run"}).Read(r, &run); err != nil {
		return nil, err
	}
	for i := range run.Scenarios {
		if v := run.Scenarios[i].Verdict; !slices.Contains(Verdicts(), v) {
			return nil, &KeyError{Key: fmt.Sprintf("scenarios[%d].verdict", i), Err: fmt.Errorf("%q is none of %q", v, Verdicts())}
		}
	}
	return &run, nil
}

// ReadFile reads the result.json of a run.
func ReadFile(path string) (*Run, error) { return kit.ReadFile(path, Read) }

// resultFile is the name of the results in the folder of a run.
const resultFile = "result.json"

// Paths are the files that WriteFolder wrote.
type Paths = kit.Paths

// FolderError lists the files of a run's folder that could not be written, and the others.
type FolderError = kit.Error

// WriteFolder writes result.json, junit.xml and report.html into a folder, which it
// creates if needed. Each file is replaced atomically, and an error in one does not
// prevent the others. The error is a *FolderError; paths has the files that were written.
func WriteFolder(dir string, r *Run) (paths Paths, err error) {
	err = kit.WriteAll(dir, kit.Results(r, &paths, resultFile, Write, WriteJUnit, WriteHTML))
	return paths, err
}
