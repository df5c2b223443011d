package cmdline

import (
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
// opening or reading a FIFO or a device could block forever.
func OpenFile(path string) (*os.File, error) {
	info, err := os.Stat(path) // opening a device can have effects
	if err == nil {
		err = checkRegular(path, info)
	}
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
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

// CheckFile returns an error if OpenFile fails, for files that another program will read.
func CheckFile(path string) error {
	f, err := OpenFile(path)
	if err != nil {
		return err
	}
	return f.Close()
}

// checkRegular returns an error with the kind of file unless it is regular.
func checkRegular(path string, info fs.FileInfo) error {
	if info.Mode().IsRegular() {
		return nil
	}
	return &fs.PathError{Op: "open", Path: path, Err: fmt.Errorf("it is %s, %w: name a regular file", kindOfFile(info.Mode()), ErrNotRegular)}
}

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

// ReadFile reads a regular file of at most limit bytes.
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

// Open implements fs.FS.
func (d dirFS) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	f, err := OpenFile(filepath.Join(string(d), filepath.FromSlash(name)))
	var path *fs.PathError
	switch {
	case errors.As(err, &path):
		return nil, &fs.PathError{Op: path.Op, Path: name, Err: path.Err}
	case err != nil:
		return nil, err
	}
	return f, nil
}
