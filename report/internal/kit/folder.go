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

// Results returns the files of a result folder: the results, with this name, the page and,
// unless junit is nil, junit.xml. The functions write v. Writing a file sets its path in
// paths.
func Results[T any](v T, paths *Paths, name string, result, junit, page func(io.Writer, T) error) []File {
	bind := func(write func(io.Writer, T) error) func(io.Writer) error {
		return func(w io.Writer) error { return write(w, v) }
	}
	all := []File{{name, bind(result), &paths.Result}}
	if junit != nil {
		all = append(all, File{JUnitFile, bind(junit), &paths.JUnit})
	}
	return append(all, File{PageFile, bind(page), &paths.HTML})
}

// Names of files in result folders.
const (
	JUnitFile = "junit.xml"
	PageFile  = "report.html"
)

// WriteAll writes files into a folder, which it creates if needed. It replaces existing
// files, and continues after a file that cannot be written. The error is an *Error.
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
			fail.Failed, fail.Errs = append(fail.Failed, f.Name), append(fail.Errs, withoutTempName(err))
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
	// A full disk may be reported by Sync or Close only.
	err = errors.Join(err, f.Chmod(0o644))
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, name))
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the file may be gone already
	}
	return err
}

// withoutTempName returns an error without the name of the temporary file.
func withoutTempName(err error) error {
	var path *os.PathError
	if errors.As(err, &path) && strings.HasSuffix(path.Path, ".tmp") {
		return path.Err
	}
	return err
}
