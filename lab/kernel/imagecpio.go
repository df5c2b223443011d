package kernel

import (
	"bufio"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/fabrictest/fabrictest/internal/cli"
)

// File types in a Unix mode.
const (
	typeDir  = 0o040000
	typeFile = 0o100000
	typeLink = 0o120000
)

// Archive writes an initramfs in cpio's newc format. Equal files give equal bytes:
// there are no timestamps, and all files belong to root. Duplicate names and
// missing directories are errors, which Close returns.
type Archive struct {
	w     *bufio.Writer
	n     int64 // written so far
	inode uint32
	names map[string]bool
	err   error
}

// NewArchive returns an archive that is written to w. Close completes it.
func NewArchive(w io.Writer) *Archive {
	return &Archive{w: bufio.NewWriterSize(w, 1<<20), names: map[string]bool{"": true}}
}

// AddDir adds a directory and its parents, unless they exist.
func (a *Archive) AddDir(name string) {
	name = clean(name)
	if name == "" || a.names[name] {
		return
	}
	a.AddDir(path.Dir(name))
	a.writeEntry(name, typeDir|0o755, 0, nil) // no content
}

// AddFile adds a file with size bytes from a reader.
func (a *Archive) AddFile(name string, mode fs.FileMode, size int64, from io.Reader) {
	if size > 1<<32-1 {
		a.fail(fmt.Errorf("%s has %d bytes, more than the format allows", name, size))
		return
	}
	a.writeEntry(clean(name), typeFile|uint32(mode.Perm()), uint32(size), from)
}

// AddText adds a file with a text.
func (a *Archive) AddText(name string, mode fs.FileMode, text string) {
	a.AddFile(name, mode, int64(len(text)), strings.NewReader(text))
}

// CopyFile adds a copy of a local file, and its directory. Symbolic links are followed.
func (a *Archive) CopyFile(name, from string) {
	f, info, err := openFile(from)
	if err != nil {
		a.fail(err)
		return
	}
	defer f.Close()
	mode := fs.FileMode(0o644)
	if info.Mode()&0o111 != 0 {
		mode = 0o755
	}
	a.AddDir(path.Dir(name))
	a.AddFile(name, mode, info.Size(), f)
}

// openFile opens a file and returns its properties.
func openFile(name string) (*os.File, fs.FileInfo, error) {
	f, err := cli.OpenFile(name)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// writeArchive creates an archive file; add adds its contents.
func writeArchive(name string, add func(*Archive) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	a := NewArchive(f)
	if err := add(a); err != nil {
		return err
	}
	if err := a.Close(); err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(name), err)
	}
	return f.Close()
}

// AddLink adds a symbolic link.
func (a *Archive) AddLink(name, target string) {
	a.writeEntry(clean(name), typeLink|0o777, uint32(len(target)), strings.NewReader(target))
}

// Close writes the trailer, and returns the first error of all methods.
func (a *Archive) Close() error {
	a.writeHeader("TRAILER!!!", 0, 0, 0)
	a.pad(512) // the block size of cpio
	if a.err == nil {
		a.err = a.w.Flush()
	}
	return a.err
}

// clean returns a path without slashes at its ends, as in an archive.
func clean(name string) string { return strings.Trim(path.Clean("/"+name), "/") }

// fail keeps the first error for Close.
func (a *Archive) fail(err error) {
	if a.err == nil {
		a.err = err
	}
}

// writeEntry writes the header of a file, and size bytes of content unless from is nil.
func (a *Archive) writeEntry(name string, mode, size uint32, from io.Reader) {
	switch parent := clean(path.Dir("/" + name)); {
	case a.err != nil:
		return
	case a.names[name]:
		a.fail(fmt.Errorf("%s is written twice", name))
		return
	case !a.names[parent]:
		a.fail(fmt.Errorf("%s is written before its folder", name))
		return
	}
	a.names[name] = true
	a.inode++
	a.writeHeader(name, mode, size, a.inode)
	if from == nil {
		return
	}
	n, err := io.Copy(countingWriter{a}, io.LimitReader(from, int64(size)))
	if err == nil && n < int64(size) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		a.fail(fmt.Errorf("%s, after %d of %d bytes: %w", name, n, size, err))
	}
	a.pad(4)
}

// writeHeader writes a header of the newc format: the magic number, thirteen fields of eight
// hexadecimal digits, and the name.
func (a *Archive) writeHeader(name string, mode, size, inode uint32) {
	links := uint32(1)
	if mode&typeDir != 0 {
		links = 2
	}
	fmt.Fprint(countingWriter{a}, "070701")
	for _, field := range []uint32{
		inode, mode, 0, 0, links, 0, size, // number, mode, user, group, links, time, size
		0, 0, 0, 0, uint32(len(name) + 1), 0, // devices, the name's length, no checksum
	} {
		fmt.Fprintf(countingWriter{a}, "%08x", field)
	}
	fmt.Fprintf(countingWriter{a}, "%s\x00", name)
	a.pad(4)
}

// pad pads to a multiple of n bytes.
func (a *Archive) pad(n int64) {
	if over := a.n % n; over != 0 {
		_, _ = countingWriter{a}.Write(make([]byte, n-over))
	}
}

// countingWriter counts the written bytes, and stops at the first error.
type countingWriter struct{ a *Archive }

// Write implements io.Writer.
func (c countingWriter) Write(b []byte) (int, error) {
	if c.a.err != nil {
		return 0, c.a.err
	}
	n, err := c.a.w.Write(b)
	c.a.n += int64(n)
	if err != nil {
		c.a.fail(err)
	}
	return n, err
}
