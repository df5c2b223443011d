package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// ErrNotRegular means that a path is not a regular file, ErrTooLong that a file exceeds
// the limit of ReadFile. Test for them with errors.Is.
var (
	ErrNotRegular = errors.New("not a regular file")
	ErrTooLong    = errors.New("too long")
)

// OpenFile opens a file that a user named, for reading. It rejects all but regular files:
// opening or reading a FIFO or a device could block forever. It checks the file before, since
// opening a device can have effects, and after, since the file may have been replaced.
func OpenFile(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err == nil {
		err = checkRegular(path, info)
	}
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // O_NONBLOCK in case it is a FIFO by now
	if err != nil {
		return nil, err
	}
	if info, err = f.Stat(); err == nil {
		err = checkRegular(path, info)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// CheckFile returns the error of OpenFile, for a file that another program will open.
func CheckFile(path string) error {
	f, err := OpenFile(path)
	if err != nil {
		return err
	}
	return f.Close()
}

// checkRegular returns nil for a regular file, else an ErrNotRegular that names the type of the
// file.
func checkRegular(path string, info fs.FileInfo) error {
	if info.Mode().IsRegular() {
		return nil
	}
	return &fs.PathError{Op: "open", Path: path, Err: fmt.Errorf("it is %s, %w: name a regular file", kindOfFile(info.Mode()), ErrNotRegular)}
}

// kindOfFile returns the name of the type of a file that is not regular.
func kindOfFile(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "a folder"
	case mode&fs.ModeNamedPipe != 0:
		return "a pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	}
	return "a special file"
}

// ReadFile reads a regular file. It returns ErrTooLong for a file of more than limit bytes.
func ReadFile(path string, limit int64) ([]byte, error) {
	f, err := OpenFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("%w: more than %d bytes", ErrTooLong, limit)}
	}
	return text, err
}

// DirFS is like [os.DirFS], and opens regular files only.
func DirFS(dir string) fs.FS { return dirFS(dir) }

type dirFS string

// Open opens a regular file below the folder d. As fs.FS demands, errors have paths relative to d.
func (d dirFS) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	f, err := OpenFile(filepath.Join(string(d), filepath.FromSlash(name)))
	var pathErr *fs.PathError
	switch {
	case errors.As(err, &pathErr):
		return nil, &fs.PathError{Op: pathErr.Op, Path: name, Err: pathErr.Err}
	case err != nil:
		return nil, err
	}
	return f, nil
}

// WriteFile writes a file with write, unless its name is empty.
func WriteFile(name string, write func(io.Writer) error) error {
	if name == "" {
		return nil
	}
	var text bytes.Buffer
	if err := write(&text); err != nil {
		return err
	}
	return os.WriteFile(name, text.Bytes(), 0o644)
}
