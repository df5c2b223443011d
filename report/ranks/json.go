package ranks

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/fabrictest/fabrictest/internal/regularfile"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/report/internal/kit"
)

// Files of a result folder.
const (
	ResultFile = "ranks.json"
	PageFile   = "report.html"
)

// Write writes a run as JSON. A version of 0 is written as Version.
func Write(w io.Writer, r *Run) error {
	out := *r
	if out.Version == 0 {
		out.Version = Version
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(&out)
}

// Read reads a run that Write wrote. Unknown versions and keys are errors.
func Read(r io.Reader) (*Run, error) {
	text, err := io.ReadAll(io.LimitReader(r, report.MaxSize+1))
	if err != nil {
		return nil, err
	}
	if len(text) > report.MaxSize {
		return nil, fmt.Errorf("longer than %d bytes", report.MaxSize)
	}
	if err := kit.Version(text, Version, "the result of fabrictest mpirun or perf memory"); err != nil {
		return nil, err
	}
	run := new(Run)
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(run); err != nil {
		return nil, fmt.Errorf("after %d of %d bytes: %w", d.InputOffset(), len(text), err)
	}
	return run, nil
}

// ReadFile reads the ranks.json of a run.
func ReadFile(path string) (*Run, error) {
	f, err := regularfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	run, err := Read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return run, nil
}

// Paths are the files that WriteFolder wrote.
type Paths struct {
	Result string // ranks.json
	HTML   string // report.html
}

// WriteFolder writes ranks.json and report.html into a folder, which it creates if needed.
// Each file is replaced atomically. The error is a *report.FolderError; paths has the files
// that were written.
func WriteFolder(dir string, r *Run) (paths Paths, err error) {
	err = kit.WriteAll(dir, []kit.File{
		{Name: ResultFile, Write: func(w io.Writer) error { return Write(w, r) }, Path: &paths.Result},
		{Name: PageFile, Write: func(w io.Writer) error { return WriteHTML(w, r) }, Path: &paths.HTML},
	})
	return paths, err
}
