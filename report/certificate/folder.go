package certificate

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/report/conform"
	"github.com/fabrictest/fabrictest/report/internal/files"
	"github.com/fabrictest/fabrictest/report/internal/strict"
)

// The files of a certificate, beside the captures that its results name.
const (
	File     = "certificate.json"
	PageFile = "certificate.html"
)

// WriteFolder writes the certificate, its page and JUnit results into the folder in
// which the captures already are, and then the manifest of all of it.
func (c *Certificate) WriteFolder(dir string) error {
	var path string
	if err := files.WriteAll(dir, []files.File{
		{Name: File, Write: c.write, Path: &path},
		{Name: PageFile, Write: c.writePage, Path: &path},
		{Name: "junit.xml", Write: func(w io.Writer) error { return conform.WriteJUnit(w, &c.Run) }, Path: &path},
	}); err != nil {
		return err
	}
	// A signature of what was there before says nothing of this.
	if err := os.Remove(filepath.Join(dir, SignatureFile)); err != nil && !os.IsNotExist(err) {
		return err
	}
	text, err := manifest(dir)
	if err != nil {
		return err
	}
	return files.Write(dir, ManifestFile, text)
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
	f, err := os.Open(filepath.Join(dir, File))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, report.MaxSize+1))
	if err != nil {
		return nil, err
	}
	bad := func(err error) error { return fmt.Errorf("%s: %w", filepath.Join(dir, File), err) }
	if len(text) > report.MaxSize {
		return nil, bad(fmt.Errorf("longer than %d bytes: no certification writes that", report.MaxSize))
	}
	if err := strict.Version(text, Version, "a certificate"); err != nil {
		return nil, bad(err)
	}
	c := new(Certificate)
	if err := strict.Decode(text, c); err != nil {
		return nil, bad(err)
	}
	return c, nil
}
