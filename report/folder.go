package report

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Paths are the files that WriteFolder wrote.
type Paths struct {
	Result string // result.json
	JUnit  string // junit.xml
	HTML   string // report.html
}

// FolderError says which files of a run's folder could not be written, and which
// were.
type FolderError struct {
	Dir     string
	Written []string // names of the files that are there, complete
	Failed  []string // names of those that are not
	Errs    []error  // why, one for each of Failed
}

func (e *FolderError) Error() string {
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

// Unwrap returns the reasons.
func (e *FolderError) Unwrap() []error { return e.Errs }

// WriteFolder writes result.json, junit.xml and report.html into a folder, which
// it makes if need be. A file appears under its name only when it is complete,
// in the place of one that was there before; what cannot be written does not keep
// the others from being tried. The error is a *FolderError, and paths then holds
// those that were written.
func WriteFolder(dir string, r *Run) (paths Paths, err error) {
	fail := &FolderError{Dir: dir}
	mkdir := os.MkdirAll(dir, 0o777)
	for _, f := range []struct {
		name  string
		write func(io.Writer, *Run) error
		path  *string
	}{
		{"result.json", Write, &paths.Result},
		{"junit.xml", WriteJUnit, &paths.JUnit},
		{"report.html", WriteHTML, &paths.HTML},
	} {
		err := mkdir
		if err == nil {
			var b bytes.Buffer
			if err = f.write(&b, r); err == nil {
				err = writeFile(dir, f.name, b.Bytes())
			}
		}
		if err != nil {
			fail.Failed, fail.Errs = append(fail.Failed, f.name), append(fail.Errs, reason(err))
			continue
		}
		*f.path = filepath.Join(dir, f.name)
		fail.Written = append(fail.Written, f.name)
	}
	if len(fail.Failed) > 0 {
		return paths, fail
	}
	return paths, nil
}

// writeFile writes a file beside its name and then gives it the name. Nothing
// is left of it if that fails.
func writeFile(dir, name string, text []byte) error {
	f, err := os.CreateTemp(dir, "."+name+"-*.tmp")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	// A full disk may show only when the bytes leave the cache.
	err = errors.Join(err, f.Chmod(0o644))
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, name))
	}
	if err != nil {
		err = errors.Join(err, removeTemp(f.Name()))
	}
	return err
}

func removeTemp(name string) error {
	if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// reason is an error without the name of the temporary file, which is gone.
func reason(err error) error {
	var path *os.PathError
	if errors.As(err, &path) && strings.HasSuffix(path.Path, ".tmp") {
		return path.Err
	}
	return err
}
