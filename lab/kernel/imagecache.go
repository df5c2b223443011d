package kernel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/fabrictest/fabrictest/internal/cli"
)

// Image is a bootable image.
type Image struct {
	Series  Series
	Release string // as printed by uname -r
	Version string // of the kernel package
	// Kernel and Archives are files. The kernel unpacks the archives in order.
	Kernel   string
	Archives []string
	SIW      bool // Archives includes siw
	Built    time.Time
}

// ImageCache is a directory with images.
type ImageCache struct {
	Dir string
	// DebDirs are directories with Debian packages, which are used instead of
	// downloads if they have the right hash.
	DebDirs []string
	// Mirror is the Debian mirror, used if the machine's lists lack a package;
	// empty means DefaultMirror.
	Mirror string
	// Log, if not nil, is called with progress messages.
	Log func(string)
}

// DefaultMirror is Debian's mirror.
const DefaultMirror = "http://deb.debian.org"

// DefaultImageDir returns the image cache in the user's cache directory.
func DefaultImageDir() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no cache directory for kernels: %w; set XDG_CACHE_HOME", err)
	}
	return filepath.Join(dir, "fabrictest", "kernel"), nil
}

// logf passes a progress message to Log.
func (c ImageCache) logf(format string, args ...any) {
	if c.Log != nil {
		c.Log(fmt.Sprintf(format, args...))
	}
}

// manifest describes the inputs and files of a part of an image. It is written last.
type manifest struct {
	Recipe   string            `json:"recipe"` // hash of the recipe
	Series   Series            `json:"series"`
	Release  string            `json:"release"`
	Version  string            `json:"version"`
	Packages []Package         `json:"packages"`
	Files    map[string]string `json:"files"` // SHA-256 by name
	Built    time.Time         `json:"built"`
	dir      string
}

const manifestName = "manifest.json"

// Files in the directories of images.
const (
	kernelName = "vmlinuz"
	baseName   = "base.cpio"
	siwName    = "siw.cpio"
)

// NotBuiltError is returned if the cache has no such image.
type NotBuiltError struct {
	Series Series
	SIW    bool
	Dir    string
}

// Error says which image is missing, and the command that builds it.
func (e *NotBuiltError) Error() string {
	what := ""
	if e.SIW {
		what = " with siw"
	}
	return fmt.Sprintf("no image of Linux %s%s in %s: make it with 'fabrictest lab kernel build --kernel %[1]s'", e.Series, what, e.Dir)
}

// Find returns the latest complete image of a series with the current recipe (the list of its
// contents), or a NotBuiltError. With siw, the image must have an additional part of the same
// kernel version, with the module siw.
func (c ImageCache) Find(series Series, siw bool) (*Image, error) {
	if err := series.Check(); err != nil {
		return nil, err
	}
	extras := c.manifests("siw-"+string(series)+".*", siwRecipe)
	for _, base := range c.manifests(string(series)+"-*", hash(currentRecipe)) {
		img := base.image()
		for _, extra := range extras {
			if extra.Version == base.Version && extra.Release == base.Release {
				img.addSIW(extra)
				break
			}
		}
		if img.SIW || !siw {
			return img, nil
		}
	}
	return nil, &NotBuiltError{Series: series, SIW: siw, Dir: c.Dir}
}

// image returns the image without siw whose base the manifest describes.
func (m *manifest) image() *Image {
	return &Image{
		Series: m.Series, Release: m.Release, Version: m.Version, Built: m.Built,
		Kernel: filepath.Join(m.dir, kernelName), Archives: []string{filepath.Join(m.dir, baseName)},
	}
}

// addSIW adds the part with siw that a manifest describes.
func (img *Image) addSIW(extra *manifest) {
	img.SIW = true
	img.Archives = append(img.Archives, filepath.Join(extra.dir, siwName))
}

// manifests returns the manifests of image parts built by a recipe (a hash or version) from the
// directories that match the pattern, the latest first. It leaves out damaged parts.
func (c ImageCache) manifests(pattern, recipe string) (all []*manifest) {
	dirs, _ := filepath.Glob(filepath.Join(c.Dir, pattern)) // the pattern is valid
	for _, dir := range dirs {
		m, err := readManifest(dir)
		if err == nil && m.Recipe == recipe {
			all = append(all, m)
		} else if err != nil && !errors.Is(err, os.ErrNotExist) {
			c.logf("leaving out %s: %v", dir, err)
		}
	}
	slices.SortFunc(all, func(a, b *manifest) int { return b.Built.Compare(a.Built) })
	return all
}

// maxManifest bounds the size of a manifest.
const maxManifest = 1 << 20

// readManifest reads the manifest of a directory, and checks the hashes of its files.
func readManifest(dir string) (*manifest, error) {
	text, err := cli.ReadFile(filepath.Join(dir, manifestName), maxManifest)
	if err != nil {
		return nil, err
	}
	m := &manifest{dir: dir}
	if err := json.Unmarshal(text, m); err != nil {
		return nil, fmt.Errorf("%s: %w", manifestName, err)
	}
	for name, sum := range m.Files {
		if err := verifySHA256(filepath.Join(dir, name), sum); err != nil {
			return nil, fmt.Errorf("it is damaged: %w", err)
		}
	}
	return m, nil
}

// Ensure finds an image, or builds it.
func (c ImageCache) Ensure(ctx context.Context, series Series, siw bool) (*Image, error) {
	img, err := c.Find(series, siw)
	var missing *NotBuiltError
	if errors.As(err, &missing) {
		return c.Build(ctx, series, siw)
	}
	return img, err
}

// Check returns an error if there is no image of a series and this machine cannot build one.
func (c ImageCache) Check(series Series, siw bool) error {
	_, err := c.Find(series, siw)
	var missing *NotBuiltError
	if !errors.As(err, &missing) {
		return err
	}
	programs := []string{"apt-get", "apt-cache", "dpkg-deb", "xz"}
	if siw {
		programs = append(programs, debianCompiler, "make", "strip")
	}
	return RequirePrograms("making kernel images", programs...)
}

// Build builds an image from the current Debian packages, unless it exists.
func (c ImageCache) Build(ctx context.Context, series Series, siw bool) (*Image, error) {
	if err := series.Check(); err != nil {
		return nil, err
	}
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return nil, fmt.Errorf("guests are made on Linux on x86-64, and this is %s on %s", runtime.GOOS, runtime.GOARCH)
	}
	if err := RequirePrograms("making kernel images", "apt-get", "apt-cache", "dpkg-deb", "xz"); err != nil {
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
	work, err := c.newWorkDir()
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	return (&build{ImageCache: c, series: series, work: work}).run(ctx, siw)
}

// lock locks the cache for one builder, until unlock is called or the process ends.
func (c ImageCache) lock(ctx context.Context) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(c.Dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for logged := false; ; logged = true {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
		}
		if !logged {
			c.logf("another build is under way: waiting for it")
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// newWorkDir creates a temporary directory for a build, and removes those of killed builds. The
// caller holds the lock.
func (c ImageCache) newWorkDir() (string, error) {
	old, _ := filepath.Glob(filepath.Join(c.Dir, "build-*"))
	for _, dir := range old {
		if err := os.RemoveAll(dir); err != nil {
			return "", err
		}
	}
	return os.MkdirTemp(c.Dir, "build-")
}

// publish writes the manifest of a part of an image to the part's directory out, and renames out to
// the part's name in the cache.
func (c ImageCache) publish(out, name string, m *manifest) error {
	m.Files = map[string]string{}
	entries, err := os.ReadDir(out)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if m.Files[e.Name()], err = sha256Of(filepath.Join(out, e.Name())); err != nil {
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
	if err := os.RemoveAll(m.dir); err != nil { // a damaged part of this name
		return err
	}
	return os.Rename(out, m.dir)
}
