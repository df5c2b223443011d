package conform

import (
	"io"

	"github.com/fabrictest/fabrictest/report/internal/kit"
)

// Files of a result folder.
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

// WriteFolder writes conformance.json, junit.xml and report.html into a folder, which it
// creates if needed. Each file is replaced atomically, and an error in one does not prevent
// the others. The error is a *report.FolderError; paths has the files that were written.
func WriteFolder(dir string, r *Run) (paths Paths, err error) {
	err = kit.WriteAll(dir, []kit.File{
		{Name: ResultFile, Write: func(w io.Writer) error { return Write(w, r) }, Path: &paths.Result},
		{Name: "junit.xml", Write: func(w io.Writer) error { return WriteJUnit(w, r) }, Path: &paths.JUnit},
		{Name: PageFile, Write: func(w io.Writer) error { return WriteHTML(w, r) }, Path: &paths.HTML},
	})
	return paths, err
}
