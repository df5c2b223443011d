package image

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
	"strconv"
	"strings"

	"github.com/fabrictest/fabrictest/internal/regularfile"
)

// Package is one of Debian's, as its signed lists have it.
type Package struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	SHA256  string `json:"sha256"`
	size    int64
	arch    string
	depends string
}

// file is what apt calls it.
func (p Package) file() string {
	return fmt.Sprintf("%s_%s_%s.deb", p.Name, strings.ReplaceAll(p.Version, ":", "%3a"), p.arch)
}

// apt is Debian's package manager, with lists of the machine's or of our own. It
// fetches; it never installs.
type apt struct {
	where   string   // whose lists, for the user
	options []string // that all of its programs take
	debs    []string // folders with packages that need not be fetched
	say     func(format string, args ...any)
}

// Key of the archive's signatures, on Debian and where its package is installed.
const debianKeyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// run runs one of apt's programs in a folder and returns what it printed.
func (a *apt) run(ctx context.Context, dir, name string, args ...string) (string, error) {
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, name, append(append([]string{}, a.options...), args...)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &errs
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	err := cmd.Run()
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if err != nil {
		return out.String(), fmt.Errorf("%s %s: %w: %s", name, args[0], err, lastLines(errs.String(), 3))
	}
	return out.String(), nil
}

// ownLists makes lists of Debian's that have nothing to do with the machine's, in
// dir, and brings them up to date.
func ownLists(ctx context.Context, dir, mirror, suite, keyring string, a *apt) error {
	if _, err := os.Stat(keyring); err != nil {
		return &MissingError{
			What: []string{keyring}, For: "checking packages of Debian's", Cure: "apt-get install debian-archive-keyring (as root)",
		}
	}
	for _, d := range []string{"lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return err
		}
	}
	sources := ""
	for _, s := range []string{"debian " + suite, "debian " + suite + "-updates", "debian-security " + suite + "-security"} {
		sources += fmt.Sprintf("deb [arch=amd64 signed-by=%s] %s/%s main\n", keyring, strings.TrimRight(mirror, "/"), s)
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
		"Acquire::Languages=none", "APT::Sandbox::User=root",
	} {
		a.options = append(a.options, "-o", o)
	}
	a.where = "Debian's lists at " + mirror
	a.say("fetching %s", a.where)
	_, err := a.run(ctx, dir, "apt-get", "-q", "update")
	return err
}

// find looks packages up, all of them.
func (a *apt) find(ctx context.Context, names ...string) ([]Package, error) {
	text, err := a.run(ctx, "", "apt-cache", append([]string{"show", "--no-all-versions"}, names...)...)
	found := parseStanzas(text)
	var all []Package
	var missing []string
	for _, name := range names {
		p, ok := found[name]
		if !ok || p.SHA256 == "" {
			missing = append(missing, name)
			continue
		}
		all = append(all, p)
	}
	if missing != nil {
		return nil, &unknownError{where: a.where, names: missing, err: err}
	}
	return all, nil
}

// unknownError is a package that the lists do not have.
type unknownError struct {
	where string
	names []string
	err   error
}

func (e *unknownError) Error() string {
	return fmt.Sprintf("%s do not have %s (does 'apt-get update' help?)", e.where, strings.Join(e.names, ", "))
}

func (e *unknownError) Unwrap() error { return e.err }

// parseStanzas reads what apt-cache show prints: the first of each name counts.
func parseStanzas(text string) map[string]Package {
	found := map[string]Package{}
	for stanza := range strings.SplitSeq(text, "\n\n") {
		var p Package
		for line := range strings.Lines(stanza) {
			key, value, _ := strings.Cut(strings.TrimRight(line, "\n"), ": ")
			switch key {
			case "Package":
				p.Name = value
			case "Version":
				p.Version = value
			case "Architecture":
				p.arch = value
			case "SHA256":
				p.SHA256 = value
			case "Size":
				p.size, _ = strconv.ParseInt(value, 10, 64) // for show only
			case "Depends":
				p.depends = value
			}
		}
		if _, have := found[p.Name]; p.Name != "" && !have {
			found[p.Name] = p
		}
	}
	return found
}

// dependency is the first that begins like that.
func (p Package) dependency(prefix string) string {
	for word := range strings.SplitSeq(p.depends, ",") {
		if name, _, _ := strings.Cut(strings.TrimSpace(word), " "); strings.HasPrefix(name, prefix) {
			return name
		}
	}
	return ""
}

// fetch puts packages into a folder and returns the paths of their files, in order.
func (a *apt) fetch(ctx context.Context, dir string, all []Package) ([]string, error) {
	paths := make([]string, 0, len(all))
	var names []string
	var size int64
	for _, p := range all {
		path := filepath.Join(dir, p.file())
		for _, d := range a.debs {
			if have := filepath.Join(d, p.file()); checkSum(have, p.SHA256) == nil {
				path = have
			}
		}
		paths = append(paths, path)
		if checkSum(path, p.SHA256) != nil {
			names = append(names, p.Name+"="+p.Version)
			size += p.size
		}
	}
	if names == nil {
		return paths, nil
	}
	a.say("fetching %d packages, %d MB", len(names), (size+500_000)/1_000_000)
	if _, err := a.run(ctx, dir, "apt-get", append([]string{"-q", "-o", "APT::Sandbox::User=root", "download"}, names...)...); err != nil {
		return nil, fmt.Errorf("fetch packages: %w (are %s up to date?)", err, a.where)
	}
	for i, p := range all {
		if err := checkSum(paths[i], p.SHA256); err != nil {
			return nil, fmt.Errorf("package %s: %w", p.Name, err)
		}
	}
	return paths, nil
}

// checkSum says that a file is not the one that was meant.
func checkSum(path, want string) error {
	got, err := sumOf(path)
	if err == nil && got != want {
		err = fmt.Errorf("%s has SHA-256 %s, want %s", path, got, want)
	}
	return err
}

// sumOf is the SHA-256 of a file.
func sumOf(path string) (string, error) {
	f, err := regularfile.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return hex.EncodeToString(h.Sum(nil)), err
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "; ")
}

// hostSuite is the release of Debian that the machine runs; empty if it is none.
func hostSuite() string {
	text, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return ""
	}
	return suiteOf(string(text))
}

func suiteOf(release string) string {
	fields := map[string]string{}
	for line := range strings.Lines(release) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		fields[key] = strings.Trim(value, `"`)
	}
	if fields["ID"] != "debian" {
		return ""
	}
	return fields["VERSION_CODENAME"]
}
