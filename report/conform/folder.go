package conform

import (
	"io"

	"github.com/fabrictest/fabrictest/report/internal/files"
)

// The files of a folder of results: for programs, and for people.
const (
	ResultFile = "conformance.json"
	PageFile   = "report.html"
)

// Paths are the files that WriteFolder wrote.
type Paths struct {
	Result string // conformance.json
	JUnit  string // junit.xml
	HTML   string // report.html
}

// WriteFolder writes conformance.json, junit.xml and report.html into a folder, which
// it makes if need be. A file appears under its name only when it is complete; what
// cannot be written does not keep the others from being tried. The error is a
// *report.FolderError, and paths then holds those that were written.
func WriteFolder(dir string, r *Run) (paths Paths, err error) {
	err = files.WriteAll(dir, []files.File{
		{Name: ResultFile, Write: func(w io.Writer) error { return Write(w, r) }, Path: &paths.Result},
		{Name: "junit.xml", Write: func(w io.Writer) error { return WriteJUnit(w, r) }, Path: &paths.JUnit},
		{Name: PageFile, Write: func(w io.Writer) error { return WriteHTML(w, r) }, Path: &paths.HTML},
	})
	return paths, err
}
