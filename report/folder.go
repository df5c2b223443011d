package report

import (
	"io"

	"github.com/fabrictest/fabrictest/report/internal/files"
)

// Paths are the files that WriteFolder wrote.
type Paths struct {
	Result string // result.json
	JUnit  string // junit.xml
	HTML   string // report.html
}

// FolderError says which files of a run's folder could not be written, and which
// were.
type FolderError = files.Error

// WriteFolder writes result.json, junit.xml and report.html into a folder, which
// it makes if need be. A file appears under its name only when it is complete,
// in the place of one that was there before; what cannot be written does not keep
// the others from being tried. The error is a *FolderError, and paths then holds
// those that were written.
func WriteFolder(dir string, r *Run) (paths Paths, err error) {
	err = files.WriteAll(dir, []files.File{
		{Name: "result.json", Write: func(w io.Writer) error { return Write(w, r) }, Path: &paths.Result},
		{Name: "junit.xml", Write: func(w io.Writer) error { return WriteJUnit(w, r) }, Path: &paths.JUnit},
		{Name: "report.html", Write: func(w io.Writer) error { return WriteHTML(w, r) }, Path: &paths.HTML},
	})
	return paths, err
}
