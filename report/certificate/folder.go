package certificate

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/fabrictest/fabrictest/report/conform"
	"github.com/fabrictest/fabrictest/report/internal/kit"
)

// Files of a certificate, in addition to the captures.
const (
	File     = "certificate.json"
	PageFile = "certificate.html"
)

// WriteFolder writes the certificate, its page and JUnit results into the folder of the
// captures, and then the manifest.
func (c *Certificate) WriteFolder(dir string) error {
	// Make the certificate from the data as read back from JSON, since [Verify] does the
	// same and not every text and time survives JSON unchanged.
	var text bytes.Buffer
	if err := c.write(&text); err != nil {
		return err
	}
	read, err := parse(&text)
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(dir, File), err)
	}
	all := append([]kit.File{{Name: File, Write: read.write}}, read.pages()...)
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

// pages returns the files that are generated from the certificate.
func (c *Certificate) pages() []kit.File {
	return []kit.File{
		{Name: PageFile, Write: c.writePage},
		{Name: kit.JUnitFile, Write: func(w io.Writer) error { return conform.WriteJUnit(w, &c.Run) }},
	}
}

func (c *Certificate) write(w io.Writer) error {
	out := *c
	out.Version = Version
	out.Run.Version = cmp.Or(c.Run.Version, conform.Version)
	return kit.WriteJSON(w, &out)
}

// Read reads the certificate of a folder. Unknown versions and keys are errors.
func Read(dir string) (*Certificate, error) { return kit.ReadFile(filepath.Join(dir, File), parse) }

// parse reads a certificate, which must be for one device.
func parse(r io.Reader) (*Certificate, error) {
	c := new(Certificate)
	if err := (kit.Format{Version: Version, Name: "a certificate"}).Read(r, c); err != nil {
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
