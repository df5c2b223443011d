package ranks

import (
	"cmp"
	"io"

	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/report/internal/kit"
)

// Files of a result folder.
const (
	ResultFile = "ranks.json"
	PageFile   = kit.PageFile
)

// Write writes a run as JSON. A version of 0 is written as Version.
func Write(w io.Writer, r *Run) error {
	out := *r
	out.Version = cmp.Or(r.Version, Version)
	return kit.WriteJSON(w, &out)
}

// Read reads a run that Write wrote. Unknown versions, and unknown, missing and duplicate
// keys are errors.
func Read(r io.Reader) (*Run, error) {
	run := new(Run)
	if err := (kit.Format{Version: Version, Name: "the result of fabrictest mpirun or perf memory"}).Read(r, run); err != nil {
		return nil, err
	}
	return run, nil
}

// ReadFile reads the ranks.json of a run.
func ReadFile(path string) (*Run, error) { return kit.ReadFile(path, Read) }

// WriteFolder writes ranks.json and report.html into a folder, which it creates if needed.
// Each file is replaced atomically. The error is a *report.FolderError; paths has the files
// that were written.
func WriteFolder(dir string, r *Run) (paths report.Paths, err error) {
	err = kit.WriteAll(dir, kit.Results(r, &paths, ResultFile, Write, nil, WriteHTML))
	return paths, err
}
