package image

import (
	"bufio"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Types of files, as in a mode of Unix.
const (
	typeDir  = 0o040000
	typeFile = 0o100000
	typeLink = 0o120000
)

// Archive writes files in the format that Linux unpacks as its first file system:
// cpio's "newc". Same files, same octets: it has no clock and no users but root.
// What is written twice, or without its folder, is an error that Close returns too.
type Archive struct {
	w     *bufio.Writer
	n     int64 // written so far
	inode uint32
	names map[string]bool
	err   error
}

// NewArchive writes to w. It is whole after Close.
func NewArchive(w io.Writer) *Archive {
	return &Archive{w: bufio.NewWriterSize(w, 1<<20), names: map[string]bool{"": true}}
}

// Dir makes a folder, and those that it is in. One that is there already stays.
func (a *Archive) Dir(name string) {
	name = clean(name)
	if name == "" || a.names[name] {
		return
	}
	a.Dir(path.Dir(name))
	a.entry(name, typeDir|0o755, 0, nil)
}

// File makes a file of so many octets, which it reads.
func (a *Archive) File(name string, mode fs.FileMode, size int64, from io.Reader) {
	if size > 1<<32-1 {
		a.fail(fmt.Errorf("%s has %d octets, more than the format takes", name, size))
		return
	}
	a.entry(clean(name), typeFile|uint32(mode.Perm()), uint32(size), from)
}

// Text makes a file.
func (a *Archive) Text(name string, mode fs.FileMode, text string) {
	a.File(name, mode, int64(len(text)), strings.NewReader(text))
}

// Link makes a symbolic link.
func (a *Archive) Link(name, target string) {
	a.entry(clean(name), typeLink|0o777, uint32(len(target)), strings.NewReader(target))
}

// Close writes the end.
func (a *Archive) Close() error {
	a.header("TRAILER!!!", 0, 0, 0)
	a.pad(512)
	if a.err == nil {
		a.err = a.w.Flush()
	}
	return a.err
}

// Names are what was written, in order of their names.
func (a *Archive) Names() []string {
	var all []string
	for name := range a.names {
		if name != "" {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

func clean(name string) string { return strings.Trim(path.Clean("/"+name), "/") }

func (a *Archive) fail(err error) {
	if a.err == nil {
		a.err = err
	}
}

func (a *Archive) entry(name string, mode, size uint32, from io.Reader) {
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
	a.header(name, mode, size, a.inode)
	if from == nil {
		return
	}
	n, err := io.Copy(counted{a}, io.LimitReader(from, int64(size)))
	if err == nil && n < int64(size) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		a.fail(fmt.Errorf("%s, after %d of %d octets: %w", name, n, size, err))
	}
	a.pad(4)
}

// header is thirteen numbers of eight hexadecimal digits, and the name.
func (a *Archive) header(name string, mode, size, inode uint32) {
	links := uint32(1)
	if mode&typeDir != 0 && mode&typeFile == 0 {
		links = 2
	}
	fmt.Fprint(counted{a}, "070701")
	for _, field := range []uint32{
		inode, mode, 0, 0, links, 0, size, // number, mode, user, group, links, time, size
		0, 0, 0, 0, uint32(len(name) + 1), 0, // devices, the name's length, no checksum
	} {
		fmt.Fprintf(counted{a}, "%08x", field)
	}
	fmt.Fprintf(counted{a}, "%s\x00", name)
	a.pad(4)
}

// pad fills up to a multiple of n.
func (a *Archive) pad(n int64) {
	if over := a.n % n; over != 0 {
		_, _ = counted{a}.Write(make([]byte, n-over))
	}
}

// counted writes, until something fails.
type counted struct{ a *Archive }

func (c counted) Write(b []byte) (int, error) {
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
