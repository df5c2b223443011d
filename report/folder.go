package report

import (
	"io"

	"github.com/fabrictest/fabrictest/report/internal/kit"
)

// Paths are the files that WriteFolder wrote.
type Paths struct {
	Result string // result.json
	JUnit  string // junit.xml
	HTML   string // report.html
}

// FolderError lists the files of a run's folder that could not be written, and the others.
type FolderError = kit.Error

// WriteFolder writes result.json, junit.xml and report.html into a folder, which it
// creates if needed. Each file is replaced atomically, and an error in one does not
// prevent the others. The error is a *FolderError; paths has the files that were written.
func WriteFolder(dir string, r *Run) (paths Paths, err error) {
	err = kit.WriteAll(dir, []kit.File{
		{Name: "result.json", Write: func(w io.Writer) error { return Write(w, r) }, Path: &paths.Result},
		{Name: "junit.xml", Write: func(w io.Writer) error { return WriteJUnit(w, r) }, Path: &paths.JUnit},
		{Name: "report.html", Write: func(w io.Writer) error { return WriteHTML(w, r) }, Path: &paths.HTML},
	})
	return paths, err
}
