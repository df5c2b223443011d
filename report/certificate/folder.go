package certificate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/fabrictest/fabrictest/internal/regularfile"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/report/conform"
	"github.com/fabrictest/fabrictest/report/internal/files"
)

// The files of a certificate, beside the captures that its results name.
const (
	File      = "certificate.json"
	PageFile  = "certificate.html"
	JUnitFile = "junit.xml"
)

// WriteFolder writes the certificate, its page and JUnit results into the folder in
// which the captures already are, and then the manifest of all of it.
func (c *Certificate) WriteFolder(dir string) error {
	// What is drawn is what a reader of the file finds in it, so that [Verify] can draw
	// it again: not every text and time survives JSON as it is.
	text, err := c.text()
	if err != nil {
		return err
	}
	read, err := parse(text)
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(dir, File), err)
	}
	var path string
	all := []files.File{{Name: File, Write: read.write, Path: &path}}
	for _, p := range read.pages() {
		all = append(all, files.File{Name: p.name, Write: p.write, Path: &path})
	}
	if err := files.WriteAll(dir, all); err != nil {
		return err
	}
	// A signature of what was there before says nothing of this.
	if err := os.Remove(filepath.Join(dir, SignatureFile)); err != nil && !os.IsNotExist(err) {
		return err
	}
	sums, err := manifest(dir)
	if err != nil {
		return err
	}
	return files.Write(dir, ManifestFile, sums)
}

// drawnFile is a file that follows from the certificate alone.
type drawnFile struct {
	name  string
	write func(io.Writer) error
}

// pages are the files that are drawn from the certificate.
func (c *Certificate) pages() []drawnFile {
	return []drawnFile{
		{PageFile, c.writePage},
		{JUnitFile, func(w io.Writer) error { return conform.WriteJUnit(w, &c.Run) }},
	}
}

func (c *Certificate) text() ([]byte, error) {
	var b bytes.Buffer
	err := c.write(&b)
	return b.Bytes(), err
}

func (c *Certificate) write(w io.Writer) error {
	// Lists that are nil would be written as null.
	out := *c
	out.Version = Version
	out.Counts, out.Clauses = append([]Count{}, c.Counts...), append([]Clause{}, c.Clauses...)
	out.Subject.Claims = append([]string{}, c.Subject.Claims...)
	out.Subject.Addresses = append([]string{}, c.Subject.Addresses...)
	out.Judge.Addresses = append([]string{}, c.Judge.Addresses...)
	out.Run = *conform.Filled(&c.Run)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(&out)
}

// Read reads the certificate of a folder. It takes no unknown version and no key that
// it does not know.
func Read(dir string) (*Certificate, error) {
	file := filepath.Join(dir, File)
	text, err := regularfile.ReadFile(file, report.MaxSize)
	if err != nil {
		return nil, err
	}
	c, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return c, nil
}

func parse(text []byte) (*Certificate, error) {
	if err := files.Version(text, Version, "a certificate"); err != nil {
		return nil, err
	}
	c := new(Certificate)
	if err := files.Decode(text, c); err != nil {
		return nil, err
	}
	if n := len(c.Run.Devices); n != 1 {
		return nil, fmt.Errorf("run.devices: a certificate is about one device, and this has %d", n)
	}
	if err := c.Run.Check(); err != nil {
		return nil, fmt.Errorf("run.%w", err)
	}
	return c, nil
}
