package kernel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// build is one build of an image.
type build struct {
	ImageCache
	series  Series
	work    string
	apt     *apt
	kernel  Package
	release string
}

// run builds the parts of the image that do not exist yet, with siw or without.
func (b *build) run(ctx context.Context, siw bool) (*Image, error) {
	packages, err := b.resolve(ctx)
	if err != nil {
		return nil, err
	}
	base, err := b.ensurePart(string(b.series), hash(currentRecipe), packages, func(out string) error { return b.base(ctx, out, packages) })
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

// ensurePart builds a part of an image, unless it exists.
func (b *build) ensurePart(prefix, recipe string, packages []Package, fill func(out string) error) (*manifest, error) {
	name := partName(prefix, struct {
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
	return m, b.publish(out, name, m)
}

// resolve finds the packages, in the machine's lists if it runs the same Debian
// release, and else in Debian's.
func (b *build) resolve(ctx context.Context) (all []Package, err error) {
	b.apt = &apt{listsName: "the lists of this machine", debDirs: b.DebDirs, keyring: debianKeyring, logf: b.logf}
	if hostSuite() == currentRecipe.Suite {
		all, err = b.packages(ctx)
		var unknown *unknownPackageError
		if err == nil || !errors.As(err, &unknown) {
			return all, err
		}
	}
	if err := b.apt.fetchOwnLists(ctx, filepath.Join(b.Dir, "apt"), cmp.Or(b.Mirror, DefaultMirror), currentRecipe.Suite); err != nil {
		return nil, err
	}
	return b.packages(ctx)
}

// packages returns the packages of the kernel, the programs and the libraries.
func (b *build) packages(ctx context.Context) ([]Package, error) {
	meta, err := b.apt.find(ctx, b.series.metapackage())
	if err != nil {
		return nil, err
	}
	name := meta[0].dependency("linux-image-" + string(b.series) + ".")
	if name == "" {
		return nil, &unknownPackageError{listsName: b.apt.listsName, names: []string{"a kernel " + string(b.series)}}
	}
	names := append([]string{name}, currentRecipe.Packages...)
	all, err := b.apt.find(ctx, append(names, currentRecipe.Libraries...)...)
	if err != nil {
		return nil, err
	}
	b.kernel, b.release = all[0], strings.TrimPrefix(name, "linux-image-")
	return all, nil
}

// unpack downloads packages and unpacks them into a directory.
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
		if err := runCommand(ctx, "", "dpkg-deb", "-x", f, into); err != nil {
			return err
		}
	}
	return nil
}

// runCommand runs a program. The error has its last output.
func runCommand(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	output, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, args[0], err, tailLines(string(output), 20))
	}
	return nil
}

// base builds the kernel and the archive of a guest, without siw and the init
// program.
func (b *build) base(ctx context.Context, out string, packages []Package) error {
	b.logf("making guests with Linux %s in %s, once", b.release, b.Dir)
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
	b.logf("packing")
	return writeArchive(filepath.Join(out, baseName), func(a *Archive) error { return b.pack(ctx, a, kernel, user) })
}

// pack fills the archive, sorted by name, so that equal packages give equal
// archives.
func (b *build) pack(ctx context.Context, a *Archive, kernel, user string) error {
	for _, dir := range []string{"/bin", "/sbin", "/etc/libibverbs.d", "/lib64", "/root", "/proc", "/sys", "/dev", "/tmp", "/run", "/usr/sbin"} {
		a.AddDir(dir)
	}
	for _, name := range sortedKeys(currentRecipe.Files) {
		a.AddText(name, 0o644, currentRecipe.Files[name])
	}
	a.AddText("/etc/modules", 0o644, strings.Join(currentRecipe.Modules, "\n")+"\n")
	busybox, err := findProgram(user, "busybox")
	if err != nil {
		return err
	}
	a.CopyFile("/bin/busybox", busybox)
	a.AddLink("/bin/sh", "busybox")
	if err := packPrograms(a, user); err != nil {
		return err
	}
	return b.packModules(ctx, a, kernel)
}
