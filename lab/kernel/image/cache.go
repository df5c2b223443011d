package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fabrictest/fabrictest/internal/regularfile"
)

// Image is what a guest boots.
type Image struct {
	Series  Series
	Release string // what uname -r prints there
	Version string // of the kernel's package
	// Kernel and Archives are files. The archives are unpacked one after the other.
	Kernel   string
	Archives []string
	SIW      bool // one of the archives holds it
	Packages []Package
	Built    time.Time
}

// Cache is a folder with images.
type Cache struct {
	Dir string
	// Debs are folders with packages that need not be fetched any more, if they are the
	// right ones: for machines without a network, and those of an impatient developer.
	Debs []string
	// Mirror is where Debian is fetched from where the machine's own lists do not have
	// what is needed; empty is Debian's own.
	Mirror string
	// Say is told what takes time; nil tells nobody.
	Say func(string)
}

// DefaultMirror serves all of Debian.
const DefaultMirror = "http://deb.debian.org"

// DefaultDir is where images are kept: in the user's cache.
func DefaultDir() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("there is no place to keep kernels in: %w; name one with XDG_CACHE_HOME", err)
	}
	return filepath.Join(dir, "fabrictest", "kernel"), nil
}

func (c Cache) say(format string, args ...any) {
	if c.Say != nil {
		c.Say(fmt.Sprintf(format, args...))
	}
}

// manifest is what a part of an image was made from. It is written last.
type manifest struct {
	Recipe   string            `json:"recipe"` // the hash of ours at the time
	Series   Series            `json:"series"`
	Release  string            `json:"release"`
	Version  string            `json:"version"`
	Packages []Package         `json:"packages"`
	Files    map[string]string `json:"files"` // SHA-256 by name
	Built    time.Time         `json:"built"`
	dir      string
}

const manifestName = "manifest.json"

// Names of files in the folders of images.
const (
	kernelName = "vmlinuz"
	baseName   = "base.cpio"
	siwName    = "siw.cpio"
)

// NotBuiltError is an image that is not there.
type NotBuiltError struct {
	Series Series
	SIW    bool
	Dir    string
}

func (e *NotBuiltError) Error() string {
	what := ""
	if e.SIW {
		what = " with siw"
	}
	return fmt.Sprintf("no image of Linux %s%s in %s: make it with 'fabrictest lab kernel build --kernel %[1]s'", e.Series, what, e.Dir)
}

// Find returns the latest image of a series that is whole, and was made as we make
// them; with siw if that is wanted. There is none is a NotBuiltError.
func (c Cache) Find(series Series, siw bool) (*Image, error) {
	if err := series.Check(); err != nil {
		return nil, err
	}
	extras := c.manifests("siw-"+string(series)+".*", siwRecipe)
	for _, base := range c.manifests(string(series)+"-*", hash(theRecipe)) {
		img := base.image()
		for _, extra := range extras {
			if extra.Version == base.Version && extra.Release == base.Release {
				img.SIW = true
				img.Archives = append(img.Archives, filepath.Join(extra.dir, siwName))
				break
			}
		}
		if img.SIW || !siw {
			return img, nil
		}
	}
	return nil, &NotBuiltError{Series: series, SIW: siw, Dir: c.Dir}
}

func (m *manifest) image() *Image {
	return &Image{
		Series: m.Series, Release: m.Release, Version: m.Version, Packages: m.Packages, Built: m.Built,
		Kernel: filepath.Join(m.dir, kernelName), Archives: []string{filepath.Join(m.dir, baseName)},
	}
}

// manifests are those of a recipe in folders of a pattern, the latest first. Damaged
// ones are left out.
func (c Cache) manifests(pattern, recipe string) (all []*manifest) {
	dirs, _ := filepath.Glob(filepath.Join(c.Dir, pattern)) // the pattern is ours
	for _, dir := range dirs {
		m, err := readManifest(dir)
		if err == nil && m.Recipe == recipe {
			all = append(all, m)
		} else if err != nil && !errors.Is(err, os.ErrNotExist) {
			c.say("leaving out %s: %v", dir, err)
		}
	}
	slices.SortFunc(all, func(a, b *manifest) int { return b.Built.Compare(a.Built) })
	return all
}

// maxManifest is more than any manifest has.
const maxManifest = 1 << 20

func readManifest(dir string) (*manifest, error) {
	text, err := regularfile.ReadFile(filepath.Join(dir, manifestName), maxManifest)
	if err != nil {
		return nil, err
	}
	m := &manifest{dir: dir}
	if err := json.Unmarshal(text, m); err != nil {
		return nil, fmt.Errorf("%s: %w", manifestName, err)
	}
	for name, sum := range m.Files {
		if err := checkSum(filepath.Join(dir, name), sum); err != nil {
			return nil, fmt.Errorf("it is damaged: %w", err)
		}
	}
	return m, nil
}

// Ensure finds an image, or makes it.
func (c Cache) Ensure(ctx context.Context, series Series, siw bool) (*Image, error) {
	img, err := c.Find(series, siw)
	var missing *NotBuiltError
	if errors.As(err, &missing) {
		return c.Build(ctx, series, siw)
	}
	return img, err
}

// Check says why there is no image of a series, nor one that could be made here: what
// is missing on the machine.
func (c Cache) Check(series Series, siw bool) error {
	_, err := c.Find(series, siw)
	var missing *NotBuiltError
	if !errors.As(err, &missing) {
		return err
	}
	programs := []string{"apt-get", "apt-cache", "dpkg-deb", "xz"}
	if siw {
		programs = append(programs, debianCompiler, "make", "strip")
	}
	return Need("making kernel images", programs...)
}

// Build makes an image of what Debian has now, unless it is there already.
func (c Cache) Build(ctx context.Context, series Series, siw bool) (*Image, error) {
	if err := series.Check(); err != nil {
		return nil, err
	}
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return nil, fmt.Errorf("guests are made on Linux on x86-64, and this is %s on %s", runtime.GOOS, runtime.GOARCH)
	}
	if err := Need("making kernel images", "apt-get", "apt-cache", "dpkg-deb", "xz"); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return nil, err
	}
	unlock, err := c.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	work, err := c.workFolder()
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	return (&build{Cache: c, series: series, work: work}).run(ctx, siw)
}

// lock keeps other builders out, until what it returns is called or the process
// ends.
func (c Cache) lock(ctx context.Context) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(c.Dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for told := false; ; told = true {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
		}
		if !told {
			c.say("another build is under way: waiting for it")
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// workFolder is for one build, which holds the lock: others are of builds that were
// killed.
func (c Cache) workFolder() (string, error) {
	old, _ := filepath.Glob(filepath.Join(c.Dir, "build-*"))
	for _, dir := range old {
		if err := os.RemoveAll(dir); err != nil {
			return "", err
		}
	}
	return os.MkdirTemp(c.Dir, "build-")
}

// keep writes the manifest of a part that stands in out, and moves it to where it is
// found.
func (c Cache) keep(out, name string, m *manifest) error {
	m.Files = map[string]string{}
	entries, err := os.ReadDir(out)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if m.Files[e.Name()], err = sumOf(filepath.Join(out, e.Name())); err != nil {
			return err
		}
	}
	m.Built = time.Now().UTC().Truncate(time.Second)
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(out, manifestName), append(text, '\n'), 0o644); err != nil {
		return err
	}
	m.dir = filepath.Join(c.Dir, name)
	if err := os.RemoveAll(m.dir); err != nil { // one that is damaged, or we would not be here
		return err
	}
	return os.Rename(out, m.dir)
}

// folderName is what a part is kept as: it ends with what it was made from.
func folderName(prefix string, madeFrom any) string {
	const digits = 16
	return strings.Join([]string{prefix, hash(madeFrom)[:digits]}, "-")
}
