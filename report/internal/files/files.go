// Package files writes and reads the files of a run's folder: JSON and JUnit XML.
//
// Each file appears under its name only when it is complete, and an error in one does not
// keep the others from being written. [Decode] reads only JSON that this program wrote: every
// key must be known, present and given once, and an error names the place.
package files

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Error says which files of a run's folder could not be written, and which
// were.
type Error struct {
	Dir     string
	Written []string // names of the files that are there, complete
	Failed  []string // names of those that are not
	Errs    []error  // why, one for each of Failed
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

// Unwrap returns the reasons.
func (e *Error) Unwrap() []error { return e.Errs }

// File is one to be written.
type File struct {
	Name  string
	Write func(io.Writer) error
	// Path gets where it is, once it is written.
	Path *string
}

// WriteAll writes files into a folder, which it makes if need be, in the place of
// those that were there before. The error is an *Error.
func WriteAll(dir string, all []File) error {
	fail := &Error{Dir: dir}
	mkdir := os.MkdirAll(dir, 0o777)
	for _, f := range all {
		err := mkdir
		if err == nil {
			var b bytes.Buffer
			if err = f.Write(&b); err == nil {
				err = Write(dir, f.Name, b.Bytes())
			}
		}
		if err != nil {
			fail.Failed, fail.Errs = append(fail.Failed, f.Name), append(fail.Errs, reason(err))
			continue
		}
		*f.Path = filepath.Join(dir, f.Name)
		fail.Written = append(fail.Written, f.Name)
	}
	if len(fail.Failed) > 0 {
		return fail
	}
	return nil
}

// Write writes a file beside its name and then gives it the name. Nothing
// is left of it if that fails.
func Write(dir, name string, text []byte) error {
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
