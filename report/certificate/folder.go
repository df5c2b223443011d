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
	"github.com/fabrictest/fabrictest/report/internal/kit"
)

// Files of a certificate, in addition to the captures.
const (
	File      = "certificate.json"
	PageFile  = "certificate.html"
	JUnitFile = "junit.xml"
)

// WriteFolder writes the certificate, its page and JUnit results into the folder of the
// captures, and then the manifest.
func (c *Certificate) WriteFolder(dir string) error {
	// Make the certificate from the data as read back from JSON, since [Verify] does the
	// same and not every text and time survives JSON unchanged.
	text, err := c.text()
	if err != nil {
		return err
	}
	read, err := parse(text)
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(dir, File), err)
	}
	var path string
	all := []kit.File{{Name: File, Write: read.write, Path: &path}}
	for _, p := range read.pages() {
		all = append(all, kit.File{Name: p.name, Write: p.write, Path: &path})
	}
	if err := kit.WriteAll(dir, all); err != nil {
		return err
	}
	// Remove the signature of an earlier certificate.
	if err := os.Remove(filepath.Join(dir, SignatureFile)); err != nil && !os.IsNotExist(err) {
		return err
	}
	sums, err := manifest(dir)
	if err != nil {
		return err
	}
	return kit.Write(dir, ManifestFile, sums)
}

// drawnFile is a file that is generated from the certificate.
type drawnFile struct {
	name  string
	write func(io.Writer) error
}

// pages returns the generated files.
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
	// nil lists would be written as null.
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

// Read reads the certificate of a folder. Unknown versions and keys are errors.
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
	if err := kit.Version(text, Version, "a certificate"); err != nil {
		return nil, err
	}
	c := new(Certificate)
	if err := kit.Decode(text, c); err != nil {
		return nil, err
	}
	if n := len(c.Run.Devices); n != 1 {
		return nil, fmt.Errorf("run.devices: a certificate is for one device, this has %d", n)
	}
	if err := c.Run.Check(); err != nil {
		return nil, fmt.Errorf("run.%w", err)
	}
	return c, nil
}
