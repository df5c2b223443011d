package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/fabrictest/fabrictest/internal/regularfile"
)

// build makes the parts of one image, in a folder of its own.
type build struct {
	Cache
	series  Series
	work    string
	apt     *apt
	kernel  Package // of the kernel
	release string
}

func (b *build) run(ctx context.Context, siw bool) (*Image, error) {
	packages, err := b.resolve(ctx)
	if err != nil {
		return nil, err
	}
	base, err := b.part(string(b.series), hash(theRecipe), packages, func(out string) error { return b.base(ctx, out, packages) })
	if err != nil {
		return nil, err
	}
	img := base.image()
	if !siw {
		return img, nil
	}
	extra, err := b.siw(ctx)
	if err != nil {
		return nil, err
	}
	img.SIW = true
	img.Archives = append(img.Archives, filepath.Join(extra.dir, siwName))
	return img, nil
}

// part makes a part of an image, unless it is there.
func (b *build) part(prefix, recipe string, packages []Package, fill func(out string) error) (*manifest, error) {
	name := folderName(prefix, struct {
		Recipe   string
		Packages []Package
	}{recipe, packages})
	if m, err := readManifest(filepath.Join(b.Dir, name)); err == nil {
		return m, nil
	}
	out := filepath.Join(b.work, "out-"+prefix)
	if err := os.Mkdir(out, 0o755); err != nil {
		return nil, err
	}
	if err := fill(out); err != nil {
		return nil, err
	}
	m := &manifest{Recipe: recipe, Series: b.series, Release: b.release, Version: b.kernel.Version, Packages: packages}
	return m, b.keep(out, name, m)
}

// resolve finds the packages, in the machine's own lists if it runs the release that
// they are of, and else in Debian's.
func (b *build) resolve(ctx context.Context) (all []Package, err error) {
	b.apt = &apt{where: "the lists of this machine", debs: b.Debs, say: b.say}
	if hostSuite() == theRecipe.Suite {
		all, err = b.packages(ctx)
		var unknown *unknownError
		if err == nil || !errors.As(err, &unknown) {
			return all, err
		}
	}
	mirror := b.Mirror
	if mirror == "" {
		mirror = DefaultMirror
	}
	if err := ownLists(ctx, filepath.Join(b.Dir, "apt"), mirror, theRecipe.Suite, debianKeyring, b.apt); err != nil {
		return nil, err
	}
	return b.packages(ctx)
}

// packages are the kernel's and those of programs and libraries.
func (b *build) packages(ctx context.Context) ([]Package, error) {
	meta, err := b.apt.find(ctx, b.series.metapackage())
	if err != nil {
		return nil, err
	}
	name := meta[0].dependency("linux-image-" + string(b.series) + ".")
	if name == "" {
		return nil, &unknownError{where: b.apt.where, names: []string{"a kernel " + string(b.series)}}
	}
	names := append([]string{name}, theRecipe.Packages...)
	all, err := b.apt.find(ctx, append(names, theRecipe.Libraries...)...)
	if err != nil {
		return nil, err
	}
	b.kernel, b.release = all[0], strings.TrimPrefix(name, "linux-image-")
	return all, nil
}

// unpack puts the files of packages into a folder.
func (b *build) unpack(ctx context.Context, packages []Package, into string) error {
	debs := filepath.Join(b.work, "debs")
	if err := os.MkdirAll(debs, 0o755); err != nil {
		return err
	}
	files, err := b.apt.fetch(ctx, debs, packages)
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := command(ctx, "", "dpkg-deb", "-x", f, into); err != nil {
			return err
		}
	}
	return nil
}

// command runs a program; its error has what it said last.
func command(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	said, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, args[0], err, lastLines(string(said), 20))
	}
	return nil
}

// base fills a folder with a kernel, and with an archive of all that a guest has
// besides siw and the program that serves it.
func (b *build) base(ctx context.Context, out string, packages []Package) error {
	b.say("making guests with Linux %s in %s, once", b.release, b.Dir)
	kernel, user := filepath.Join(b.work, "kernel"), filepath.Join(b.work, "user")
	if err := b.unpack(ctx, packages[:1], kernel); err != nil {
		return err
	}
	if err := b.unpack(ctx, packages[1:], user); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(kernel, "boot", "vmlinuz-"+b.release), filepath.Join(out, kernelName)); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(out, baseName))
	if err != nil {
		return err
	}
	defer f.Close()
	b.say("packing")
	a := NewArchive(f)
	if err := b.pack(ctx, a, kernel, user); err != nil {
		return err
	}
	if err := a.Close(); err != nil {
		return fmt.Errorf("%s: %w", baseName, err)
	}
	return f.Close()
}

// pack fills the archive. Everything is in order of names, so that the same packages
// make the same archive.
func (b *build) pack(ctx context.Context, a *Archive, kernel, user string) error {
	for _, dir := range []string{"/bin", "/sbin", "/etc/libibverbs.d", "/lib64", "/root", "/proc", "/sys", "/dev", "/tmp", "/run", "/usr/sbin"} {
		a.Dir(dir)
	}
	for _, name := range sortedKeys(theRecipe.Files) {
		a.Text(name, 0o644, theRecipe.Files[name])
	}
	a.Text("/etc/modules", 0o644, strings.Join(theRecipe.Modules, "\n")+"\n")
	busybox, err := findProgram(user, "busybox")
	if err != nil {
		return err
	}
	if err := addFile(a, "/bin/busybox", busybox); err != nil {
		return err
	}
	a.Link("/bin/sh", "busybox")
	if err := packPrograms(a, user); err != nil {
		return err
	}
	return b.packModules(ctx, a, kernel)
}

// addFile adds what a path leads to, links followed.
func addFile(a *Archive, name, from string) error {
	f, err := regularfile.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	a.Dir(filepath.Dir(name))
	mode := fs.FileMode(0o644)
	if info.Mode()&0o111 != 0 {
		mode = 0o755
	}
	a.File(name, mode, info.Size(), f)
	return nil
}
