package kit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Error lists the files of a result folder that could not be written, and those that were.
type Error struct {
	Dir     string
	Written []string // complete files
	Failed  []string // files that could not be written
	Errs    []error  // errors, one for each of Failed
}

// Error lists the files that were not written, each with its error, and those that were.
func (e *Error) Error() string {
	var b strings.Builder
	for i, name := range e.Failed {
		if i > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "%s was not written: %v", filepath.Join(e.Dir, name), e.Errs[i])
	}
	if len(e.Written) > 0 {
		fmt.Fprintf(&b, " (written: %s)", strings.Join(e.Written, ", "))
	}
	return b.String()
}

func (e *Error) Unwrap() []error { return e.Errs }

// Paths are the files of a result folder.
type Paths struct {
	Result string // results as JSON
	JUnit  string // junit.xml; empty if the kind of result has none
	HTML   string // the page
}

// File is a file to be written.
type File struct {
	Name  string
	Write func(io.Writer) error
	// Path, if not nil, is set to the path of the written file.
	Path *string
}

// Folder is a kind of result folder: a JSON file, junit.xml and a page with the results of a value.
type Folder[T any] struct {
	Result string                   // name of the JSON file
	JUnit  func(io.Writer, T) error // writes junit.xml; nil if there is none
	Page   func(io.Writer, T) error // writes the page
}

// Write writes v into a folder, as JSON, as junit.xml if f.JUnit is not nil, and as an HTML page.
// paths has the files that were written, also if another one failed.
func (f Folder[T]) Write(dir string, v T) (paths Paths, err error) {
	all := []File{{f.Result, func(w io.Writer) error { return WriteJSON(w, v) }, &paths.Result}}
	if f.JUnit != nil {
		all = append(all, File{JUnitFile, func(w io.Writer) error { return f.JUnit(w, v) }, &paths.JUnit})
	}
	all = append(all, File{PageFile, func(w io.Writer) error { return f.Page(w, v) }, &paths.HTML})
	err = WriteAll(dir, all)
	return paths, err
}

// Names of files in result folders.
const (
	JUnitFile = "junit.xml"
	PageFile  = "report.html"
)

// WriteAll writes files into a folder, which it creates if needed, and sets the Path of each that
// was written. It replaces existing files, and continues after a file that cannot be written. The
// error is an *Error.
func WriteAll(dir string, all []File) error {
	fail := &Error{Dir: dir}
	mkdirErr := os.MkdirAll(dir, 0o777)
	for _, f := range all {
		err := mkdirErr
		if err == nil {
			var b bytes.Buffer
			if err = f.Write(&b); err == nil {
				err = Write(dir, f.Name, b.Bytes())
			}
		}
		if err != nil {
			var path *os.PathError
			if errors.As(err, &path) && strings.HasSuffix(path.Path, ".tmp") { // a name that the user does not know
				err = path.Err
			}
			fail.Failed, fail.Errs = append(fail.Failed, f.Name), append(fail.Errs, err)
			continue
		}
		if f.Path != nil {
			*f.Path = filepath.Join(dir, f.Name)
		}
		fail.Written = append(fail.Written, f.Name)
	}
	if len(fail.Failed) > 0 {
		return fail
	}
	return nil
}

// Write replaces a file of the folder dir atomically: it writes a temporary file and renames
// it, or removes it on errors.
func Write(dir, name string, text []byte) error {
	f, err := os.CreateTemp(dir, "."+name+"-*.tmp")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Chmod(0o644)) // CreateTemp gives only the owner access
	if err == nil {
		err = f.Sync() // a full disk may be reported only here or by Close
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, name))
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the file may be gone already
	}
	return err
}
