package kernel

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
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

// run builds the parts of the image that do not exist yet: the base and, if siw is set, the part
// with the kernel module siw.
func (b *build) run(ctx context.Context, siw bool) (*Image, error) {
	packages, err := b.resolve(ctx)
	if err != nil {
		return nil, err
	}
	base, err := b.ensurePart(string(b.series), hash(currentRecipe), packages, func(out string) error { return b.buildBase(ctx, out, packages) })
	if err != nil {
		return nil, err
	}
	img := base.image()
	if !siw {
		return img, nil
	}
	siwPackages, err := b.siwPackages(ctx)
	if err != nil {
		return nil, err
	}
	extra, err := b.ensurePart("siw-"+b.release, siwRecipe, siwPackages, func(out string) error { return b.compileSIW(ctx, out, siwPackages) })
	if err != nil {
		return nil, err
	}
	img.addSIW(extra)
	return img, nil
}

// ensurePart returns the manifest of a part of an image. If no part with this prefix was built
// from the same recipe and packages, it builds one: fill writes its files to the directory out.
func (b *build) ensurePart(prefix, recipe string, packages []Package, fill func(out string) error) (*manifest, error) {
	inputs := hash(struct {
		Recipe   string
		Packages []Package
	}{recipe, packages})
	name := prefix + "-" + inputs[:16]
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

// resolve finds the packages of the image. It uses the apt lists of this machine if the machine has
// the Debian release of the recipe and the lists have all packages; else it fetches Debian's lists.
func (b *build) resolve(ctx context.Context) (all []Package, err error) {
	b.apt = &apt{listsName: "the lists of this machine", debDirs: b.DebDirs, keyring: debianKeyring, logf: b.logf}
	release, _ := os.ReadFile("/etc/os-release")
	if suiteOf(string(release)) == currentRecipe.Suite {
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
	metapackage := "linux-image-amd64" // depends on the current kernel of the Debian release, 6.1
	if b.series != Linux61 {
		metapackage = "linux-image-" + string(b.series) + "-amd64"
	}
	meta, err := b.apt.find(ctx, metapackage)
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
		if err := runCommand(ctx, "dpkg-deb", "-x", f, into); err != nil {
			return err
		}
	}
	return nil
}

// runCommand runs a program. The error contains the last lines of its output.
func runCommand(ctx context.Context, name string, args ...string) error {
	output, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, args[0], err, lastLines(string(output), 20, "; "))
	}
	return nil
}

// buildBase writes the kernel and the archive of a guest, without siw and the init
// program, to the directory out. The first of the packages is the kernel's.
func (b *build) buildBase(ctx context.Context, out string, packages []Package) error {
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
	return writeArchive(filepath.Join(out, baseName), func(a *Archive) error { return b.packBase(ctx, a, kernel, user) })
}

// packBase adds the files of a guest to an archive, from the unpacked packages of the kernel and
// of programs. Equal packages give equal archives.
func (b *build) packBase(ctx context.Context, a *Archive, kernel, user string) error {
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

// siwRecipe is the version of the code in this file.
const siwRecipe = "siw 1"

// siwSource is the directory of siw in the kernel source.
const siwSource = "drivers/infiniband/sw/siw/"

// siwPackages returns the packages of the kernel headers, kbuild, and, last, the kernel source.
func (b *build) siwPackages(ctx context.Context) ([]Package, error) {
	headers := "linux-headers-" + b.release
	found, err := b.apt.find(ctx, headers)
	if err != nil {
		return nil, err
	}
	kbuild := found[0].dependency("linux-kbuild-")
	if kbuild == "" {
		return nil, fmt.Errorf("package %s does not depend on linux-kbuild: the packaging of Debian kernels has changed", headers)
	}
	common := "linux-headers-" + strings.TrimSuffix(b.release, "-amd64") + "-common"
	all, err := b.apt.find(ctx, headers, common, kbuild, "linux-source-"+string(b.series))
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		if p.Version != b.kernel.Version {
			return nil, fmt.Errorf("%s has version %s, and the kernel %s: Debian is replacing it; try again later", p.Name, p.Version, b.kernel.Version)
		}
	}
	return all, nil
}

// debianCompiler is the compiler of Debian 12's kernels. The kernel headers may name another.
const debianCompiler = "gcc-12"

var compilerLine = regexp.MustCompile(`(?m)^CC = .*\(CROSS_COMPILE\)(gcc[-0-9]*)$`)

// compileSIW builds soft-iWARP for the image's kernel from Debian's source of the same version,
// which is the last of the packages. It builds the module unchanged, and again with the MPA CRC
// required, because siw has no option for that.
func (b *build) compileSIW(ctx context.Context, out string, packages []Package) error {
	b.logf("building siw for Linux %s, once", b.release)
	tree := filepath.Join(b.work, "tree")
	if err := b.unpack(ctx, packages[:len(packages)-1], tree); err != nil {
		return err
	}
	headers := filepath.Join(tree, "usr/src/linux-headers-"+b.release)
	variables, err := os.ReadFile(filepath.Join(headers, ".kernelvariables"))
	if err != nil {
		return err
	}
	// Modules of another compiler than the kernel's may not load.
	compiler := "gcc"
	if m := compilerLine.FindSubmatch(variables); m != nil {
		compiler = string(m[1])
	}
	if err := RequirePrograms("building siw", compiler, "make", "strip", "xz"); err != nil {
		return err
	}
	// The headers are below tree, not in /usr/src. Without vmlinux the build needs no pahole.
	if err := substitute(filepath.Join(headers, "Makefile"), "include /usr/src/", "include "+tree+"/usr/src/"); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(headers, "vmlinux")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	source, err := b.apt.fetch(ctx, filepath.Join(b.work, "debs"), packages[len(packages)-1:])
	if err != nil {
		return err
	}
	b.logf("unpacking the kernel's source")
	siw := filepath.Join(b.work, "siw")
	if err := extractSIW(ctx, source[0], siw); err != nil {
		return fmt.Errorf("the kernel's source in %s: %w", filepath.Base(source[0]), err)
	}
	if err := substitute(filepath.Join(siw, "Makefile"), "obj-$(CONFIG_RDMA_SIW)", "obj-m"); err != nil {
		return err
	}
	return writeArchive(filepath.Join(out, siwName), func(a *Archive) error { return b.compileVariants(ctx, a, siw, headers, compiler) })
}

// compileVariants compiles the sources of siw, without and with the MPA CRC required, and adds the
// modules to an archive.
func (b *build) compileVariants(ctx context.Context, a *Archive, siw, headers, compiler string) error {
	for _, variant := range []string{"siw.ko", "siw-crc.ko"} {
		if variant == "siw-crc.ko" {
			const before = "\nconst bool mpa_crc_required;"
			if err := substitute(filepath.Join(siw, "siw_main.c"), before, strings.TrimSuffix(before, ";")+" = true;"); err != nil {
				return err
			}
		}
		b.logf("compiling %s", variant)
		if err := runCommand(ctx, "make", "-C", headers, "M="+siw, "CC="+compiler, "modules"); err != nil {
			return fmt.Errorf("siw does not build for Linux %s: %w", b.release, err)
		}
		stripped := filepath.Join(b.work, variant)
		if err := runCommand(ctx, "strip", "-g", "-o", stripped, filepath.Join(siw, "siw.ko")); err != nil {
			return err
		}
		a.CopyFile("/lib/siw/"+variant, stripped)
	}
	return nil
}

// substitute replaces all occurrences of a text in a file, which must contain it.
func substitute(file, before, after string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if !bytes.Contains(text, []byte(before)) {
		return fmt.Errorf("%s no longer has %q", file, strings.TrimSpace(before))
	}
	return os.WriteFile(file, bytes.ReplaceAll(text, []byte(before), []byte(after)), 0o644)
}

// extractSIW extracts the directory of siw from the kernel source in a Debian package.
func extractSIW(ctx context.Context, deb, into string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // kills programs whose output is not read
	pkg := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", deb)
	files, err := pkg.StdoutPipe()
	if err != nil {
		return err
	}
	if err := pkg.Start(); err != nil {
		return err
	}
	defer func() { cancel(); _ = pkg.Wait() }()
	outer := tar.NewReader(files)
	for {
		h, err := outer.Next()
		if errors.Is(err, io.EOF) {
			return errors.New("no source archive")
		}
		if err != nil {
			return err
		}
		if strings.HasSuffix(h.Name, ".tar.xz") && strings.HasPrefix(path.Base(h.Name), "linux-source-") {
			break
		}
	}
	unxz := exec.CommandContext(ctx, "xz", "-dc")
	unxz.Stdin = outer
	source, err := unxz.StdoutPipe()
	if err != nil {
		return err
	}
	if err := unxz.Start(); err != nil {
		return err
	}
	defer func() { cancel(); files.Close(); _ = unxz.Wait() }() // Close ends the copying to its input
	return extractFolder(source, siwSource, into)
}

// extractFolder extracts the files of one directory, which are adjacent, from a tar archive. It
// stops reading after the last of them.
func extractFolder(from io.Reader, folder, into string) error {
	if err := os.MkdirAll(into, 0o755); err != nil {
		return err
	}
	inner, found := tar.NewReader(from), 0
	for {
		h, err := inner.Next()
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		inFolder := err == nil && strings.Contains(h.Name, "/"+folder)
		if found > 0 && !inFolder {
			return nil
		}
		if err != nil { // the end of the archive
			return fmt.Errorf("no directory %s", folder)
		}
		if !inFolder || h.Typeflag != tar.TypeReg {
			continue
		}
		text, err := io.ReadAll(inner)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(into, path.Base(h.Name)), text, 0o644); err != nil {
			return err
		}
		found++
	}
}
