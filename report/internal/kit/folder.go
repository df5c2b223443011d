// Package files writes and reads the files of a run's folder: JSON and JUnit XML.
//
// Each file is replaced atomically, and an error in one does not prevent the others.
// [Decode] is strict: every key must be known, present and unique, and errors name the key.
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

// Error lists the files of a run's folder that could not be written, and the others.
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

// File is a file to be written.
type File struct {
	Name  string
	Write func(io.Writer) error
	// Path is set to the path of the written file.
	Path *string
}

// WriteAll writes files into a folder, which it creates if needed. It replaces existing
// files. The error is an *Error.
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

// Write writes a temporary file and renames it. It removes the temporary file on errors.
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

// reason returns an error without the name of the temporary file.
func reason(err error) error {
	var path *os.PathError
	if errors.As(err, &path) && strings.HasSuffix(path.Path, ".tmp") {
		return path.Err
	}
	return err
}
