package kernel

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/fabrictest/fabrictest/internal/cli"
)

// Package is a Debian package, from the signed package lists.
type Package struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	SHA256  string `json:"sha256"`
	size    int64
	arch    string
	depends string
}

// file returns the file name that apt uses.
func (p Package) file() string {
	return fmt.Sprintf("%s_%s_%s.deb", p.Name, strings.ReplaceAll(p.Version, ":", "%3a"), p.arch)
}

// apt runs the package manager with the lists of the machine, or with separate
// lists. It downloads packages and does not install them.
type apt struct {
	listsName string   // for messages
	options   []string // of all apt programs
	debDirs   []string // directories with packages that need no download
	keyring   string   // with the keys of the archive, for separate lists
	logf      func(format string, args ...any)
}

// debianKeyring has the keys of the Debian archive.
const debianKeyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// run runs a program of apt in a directory and returns its output.
func (a *apt) run(ctx context.Context, dir, name string, args ...string) (string, error) {
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, name, slices.Concat(a.options, args)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &errs
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	err := cmd.Run()
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if err != nil {
		return out.String(), fmt.Errorf("%s %s: %w: %s", name, args[0], err, lastLines(errs.String(), 3, "; "))
	}
	return out.String(), nil
}

// sandboxAsRoot makes apt keep its user: its own user _apt may have no access to our directories.
const sandboxAsRoot = "APT::Sandbox::User=root"

// fetchOwnLists creates and updates package lists of Debian in dir, which later commands use
// instead of the machine's.
func (a *apt) fetchOwnLists(ctx context.Context, dir, mirror, suite string) error {
	if _, err := os.Stat(a.keyring); err != nil {
		return &MissingError{
			Missing: []string{a.keyring}, Purpose: "verifying Debian packages", Install: "apt-get install debian-archive-keyring (as root)",
		}
	}
	for _, d := range []string{"lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return err
		}
	}
	sources := ""
	for _, s := range []string{"debian " + suite, "debian " + suite + "-updates", "debian-security " + suite + "-security"} {
		sources += fmt.Sprintf("deb [arch=amd64 signed-by=%s] %s/%s main\n", a.keyring, strings.TrimRight(mirror, "/"), s)
	}
	for name, text := range map[string]string{"sources.list": sources, "status": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	for _, o := range []string{
		"Dir::Etc::SourceList=" + filepath.Join(dir, "sources.list"), "Dir::Etc::SourceParts=/dev/null",
		"Dir::State::Lists=" + filepath.Join(dir, "lists"), "Dir::State::Status=" + filepath.Join(dir, "status"),
		"Dir::Cache=" + filepath.Join(dir, "cache"), "APT::Architecture=amd64", "APT::Architectures=amd64",
		"Acquire::Languages=none", sandboxAsRoot,
	} {
		a.options = append(a.options, "-o", o)
	}
	a.listsName = "Debian's lists at " + mirror
	a.logf("fetching %s", a.listsName)
	_, err := a.run(ctx, dir, "apt-get", "-q", "update")
	return err
}

// find returns the packages with these names, or an unknownPackageError.
func (a *apt) find(ctx context.Context, names ...string) ([]Package, error) {
	text, err := a.run(ctx, "", "apt-cache", append([]string{"show", "--no-all-versions"}, names...)...)
	found := parseStanzas(text)
	var all []Package
	var missing []string
	for _, name := range names {
		p, ok := found[name]
		if !ok || p.SHA256 == "" { // not listed, or installed and no longer listed
			missing = append(missing, name)
			continue
		}
		all = append(all, p)
	}
	if missing != nil {
		return nil, &unknownPackageError{listsName: a.listsName, names: missing, err: err}
	}
	return all, nil
}

// unknownPackageError is returned for packages that the lists do not have.
type unknownPackageError struct {
	listsName string
	names     []string
	err       error
}

func (e *unknownPackageError) Error() string {
	return fmt.Sprintf("%s do not have %s (does 'apt-get update' help?)", e.listsName, strings.Join(e.names, ", "))
}

func (e *unknownPackageError) Unwrap() error { return e.err }

// parseStanzas parses the output of apt-cache show: for each name, the package of its first stanza.
func parseStanzas(text string) map[string]Package {
	found := map[string]Package{}
	for stanza := range strings.SplitSeq(text, "\n\n") {
		v := parseFields(stanza, ": ")
		size, _ := strconv.ParseInt(v["Size"], 10, 64) // for messages only
		p := Package{Name: v["Package"], Version: v["Version"], SHA256: v["SHA256"], arch: v["Architecture"], depends: v["Depends"], size: size}
		if _, have := found[p.Name]; p.Name != "" && !have {
			found[p.Name] = p
		}
	}
	return found
}

// parseFields parses lines of a key and a value, which the first separator of the line divides.
func parseFields(text, separator string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimRight(line, " \n"), separator)
		fields[key] = value
	}
	return fields
}

// dependency returns the first package with a name prefix that p depends on; "" if there is none.
func (p Package) dependency(prefix string) string {
	for word := range strings.SplitSeq(p.depends, ",") {
		if name, _, _ := strings.Cut(strings.TrimSpace(word), " "); strings.HasPrefix(name, prefix) {
			return name
		}
	}
	return ""
}

// fetch returns the files of packages, in order. It downloads files not in dir or debDirs into dir.
func (a *apt) fetch(ctx context.Context, dir string, all []Package) ([]string, error) {
	paths := make([]string, 0, len(all))
	var names []string
	var size int64
	for _, p := range all {
		path := filepath.Join(dir, p.file())
		for _, d := range a.debDirs {
			if local := filepath.Join(d, p.file()); verifySHA256(local, p.SHA256) == nil {
				path = local
			}
		}
		paths = append(paths, path)
		if verifySHA256(path, p.SHA256) != nil {
			names = append(names, p.Name+"="+p.Version)
			size += p.size
		}
	}
	if names == nil {
		return paths, nil
	}
	a.logf("fetching %d packages, %d MB", len(names), (size+500_000)/1_000_000)
	if _, err := a.run(ctx, dir, "apt-get", append([]string{"-q", "-o", sandboxAsRoot, "download"}, names...)...); err != nil {
		return nil, fmt.Errorf("fetch packages: %w (are %s up to date?)", err, a.listsName)
	}
	for i, p := range all {
		if err := verifySHA256(paths[i], p.SHA256); err != nil {
			return nil, fmt.Errorf("package %s: %w", p.Name, err)
		}
	}
	return paths, nil
}

// verifySHA256 returns an error unless the SHA-256 of a file is want.
func verifySHA256(path, want string) error {
	got, err := sha256Of(path)
	if err == nil && got != want {
		err = fmt.Errorf("%s has SHA-256 %s, want %s", path, got, want)
	}
	return err
}

// sha256Of returns the SHA-256 of a file in hexadecimal.
func sha256Of(path string) (string, error) {
	f, err := cli.OpenFile(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return hex.EncodeToString(h.Sum(nil)), err
}

// suiteOf returns the Debian suite of an os-release file; empty for another distribution.
func suiteOf(release string) string {
	fields := parseFields(strings.ReplaceAll(release, `"`, ""), "=")
	if fields["ID"] != "debian" {
		return ""
	}
	return fields["VERSION_CODENAME"]
}
