package certificate

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/report/conform"
	"github.com/fabrictest/fabrictest/report/internal/kit"
)

// Files of a certificate, in addition to the captures.
const (
	File     = "certificate.json"
	PageFile = "certificate.html"
)

// WriteFolder writes the certificate, its page and its JUnit results into dir, which has the
// captures already, and then the manifest of all files. It removes an earlier signature.
func (c *Certificate) WriteFolder(dir string) error {
	// Generate the files from the certificate as read back from JSON, because [Verify] does so
	// and not every text and time survives JSON unchanged.
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

// pages returns the files that are generated from the certificate: the page and the JUnit results.
func (c *Certificate) pages() []kit.File {
	return []kit.File{
		{Name: PageFile, Write: c.writePage},
		{Name: kit.JUnitFile, Write: func(w io.Writer) error { return conform.WriteJUnit(w, &c.Run) }},
	}
}

// write writes the certificate as JSON.
func (c *Certificate) write(w io.Writer) error { return kit.WriteJSON(w, c) }

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
		return nil, fmt.Errorf("run.%w", err) // it begins with a JSON key of the run: run.devices[0]…
	}
	return c, nil
}

// ManifestFile lists the hashes of all other files in the format of sha256sum.
// SignatureFile is the signature of the manifest.
const (
	ManifestFile  = "manifest.sha256"
	SignatureFile = ManifestFile + ".sig"
)

// Limits that no certificate exceeds.
const (
	maxFiles    = 20_000
	maxFileSize = 1 << 30
)

// hashes returns the SHA-256 hashes of the files below a folder, by relative path with slashes,
// without the manifest and its signature. Files that are not regular are errors.
func hashes(dir string) (map[string]string, error) {
	sums := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		switch {
		case name == ManifestFile || name == SignatureFile:
			return nil
		case !d.Type().IsRegular():
			return fmt.Errorf("%s is %w: a certificate has regular files only", path, cli.ErrNotRegular)
		case strings.ContainsAny(name, "\n\r\\"): // sha256sum expects these escaped
			return fmt.Errorf("%q: the name does not fit in a line of a manifest", name)
		case len(sums) == maxFiles:
			return fmt.Errorf("%s has more than %d files: more than a certificate can have", dir, maxFiles)
		}
		sums[name], err = hash(path)
		return err
	})
	return sums, err
}

// hash returns the SHA-256 of a file in hexadecimal, or an error if the file is too long.
func hash(path string) (string, error) {
	f, err := cli.OpenFile(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, io.LimitReader(f, maxFileSize+1))
	if err == nil && n > maxFileSize {
		err = fmt.Errorf("%s is longer than %d bytes: more than a certificate can have", path, maxFileSize)
	}
	return hex.EncodeToString(h.Sum(nil)), err
}

// manifest returns a folder's manifest: a line with hash and path for each file, sorted by path.
func manifest(dir string) ([]byte, error) {
	sums, err := hashes(dir)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		fmt.Fprintf(&b, "%s  %s\n", sums[name], name)
	}
	return b.Bytes(), nil
}

// checkManifest compares the text of a manifest with have, the hashes of the files by path. It
// returns the number of files in the manifest, and an error that lists all differences, or only the
// first line that is malformed or a duplicate.
func checkManifest(text []byte, have map[string]string) (files int, err error) {
	var errs []error
	listed := make(map[string]bool)
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		sum, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		switch {
		case !ok || len(sum) != 2*sha256.Size:
			return 0, fmt.Errorf("%s, line %d is not a hash, two spaces and a name", ManifestFile, n)
		case listed[name]:
			return 0, fmt.Errorf("%s, line %d: duplicate entry %s", ManifestFile, n, name)
		case have[name] == "":
			errs = append(errs, fmt.Errorf("%s is missing", name))
		case have[name] != sum:
			errs = append(errs, fmt.Errorf("%s has been changed", name))
		}
		listed[name] = true
	}
	for name := range have {
		if !listed[name] {
			errs = append(errs, fmt.Errorf("%s has been added", name))
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return len(listed), errors.Join(errs...)
}
