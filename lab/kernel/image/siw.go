package image

import (
	"archive/tar"
	"bytes"
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

// siwRecipe names how siw is built: to be changed with the code here.
const siwRecipe = "siw 1"

// siwSource is where the kernel's source has it.
const siwSource = "drivers/infiniband/sw/siw/"

// siw builds soft-iWARP for the image's kernel, out of tree and unchanged, from
// Debian's source of the very same version; and once more with one word changed, so
// that it asks for MPA's CRC, which it has no option for.
func (b *build) siw(ctx context.Context) (*manifest, error) {
	packages, err := b.siwPackages(ctx)
	if err != nil {
		return nil, err
	}
	return b.part("siw-"+b.release, siwRecipe, packages, func(out string) error { return b.compileSIW(ctx, out, packages) })
}

// siwPackages are a kernel's headers (a part of its flavour, a common part, and the
// programs of kbuild), and its source, which comes last.
func (b *build) siwPackages(ctx context.Context) ([]Package, error) {
	headers := "linux-headers-" + b.release
	found, err := b.apt.find(ctx, headers)
	if err != nil {
		return nil, err
	}
	kbuild := found[0].dependency("linux-kbuild-")
	if kbuild == "" {
		return nil, fmt.Errorf("package %s names no linux-kbuild: Debian packs its kernels in another way now", headers)
	}
	common := "linux-headers-" + strings.TrimSuffix(b.release, "-amd64") + "-common"
	all, err := b.apt.find(ctx, headers, common, kbuild, "linux-source-"+string(b.series))
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		if p.Version != b.kernel.Version {
			return nil, fmt.Errorf("%s has version %s, and the kernel %s: Debian is just replacing it; try again later", p.Name, p.Version, b.kernel.Version)
		}
	}
	return all, nil
}

// debianCompiler is what Debian 12 builds its kernels with, today. Their headers have
// the last word.
const debianCompiler = "gcc-12"

var compilerLine = regexp.MustCompile(`(?m)^CC = .*\(CROSS_COMPILE\)(gcc[-0-9]*)$`)

func (b *build) compileSIW(ctx context.Context, out string, packages []Package) error {
	b.say("building siw for Linux %s, once", b.release)
	tree := filepath.Join(b.work, "tree")
	if err := b.unpack(ctx, packages[:len(packages)-1], tree); err != nil {
		return err
	}
	headers := filepath.Join(tree, "usr/src/linux-headers-"+b.release)
	variables, err := os.ReadFile(filepath.Join(headers, ".kernelvariables"))
	if err != nil {
		return err
	}
	// The compiler that built the kernel: modules of another one may not load.
	compiler := "gcc"
	if m := compilerLine.FindSubmatch(variables); m != nil {
		compiler = string(m[1])
	}
	if err := Need("building siw", compiler, "make", "strip", "xz"); err != nil {
		return err
	}
	if err := relocate(headers, tree); err != nil {
		return err
	}
	source, err := b.apt.fetch(ctx, filepath.Join(b.work, "debs"), packages[len(packages)-1:])
	if err != nil {
		return err
	}
	b.say("unpacking the kernel's source")
	siw := filepath.Join(b.work, "siw")
	if err := extractSIW(ctx, source[0], siw); err != nil {
		return fmt.Errorf("the kernel's source in %s: %w", filepath.Base(source[0]), err)
	}
	if err := substitute(filepath.Join(siw, "Makefile"), "obj-$(CONFIG_RDMA_SIW)", "obj-m"); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(out, siwName))
	if err != nil {
		return err
	}
	defer f.Close()
	a := NewArchive(f)
	a.Dir("/lib/siw")
	for _, variant := range []string{"siw.ko", "siw-crc.ko"} {
		if variant == "siw-crc.ko" {
			const before = "\nconst bool mpa_crc_required;"
			if err := substitute(filepath.Join(siw, "siw_main.c"), before, strings.TrimSuffix(before, ";")+" = true;"); err != nil {
				return err
			}
		}
		b.say("compiling %s", variant)
		if err := command(ctx, "", "make", "-C", headers, "M="+siw, "CC="+compiler, "modules"); err != nil {
			return fmt.Errorf("siw does not build for Linux %s: %w", b.release, err)
		}
		small := filepath.Join(b.work, variant)
		if err := command(ctx, "", "strip", "-g", "-o", small, filepath.Join(siw, "siw.ko")); err != nil {
			return err
		}
		if err := addFile(a, "/lib/siw/"+variant, small); err != nil {
			return err
		}
	}
	if err := a.Close(); err != nil {
		return err
	}
	return f.Close()
}

// relocate has headers found where they were unpacked: the packages expect to lie in
// /usr. Everything else in them is relative.
func relocate(headers, tree string) error {
	if err := substitute(filepath.Join(headers, "Makefile"), "include /usr/src/", "include "+tree+"/usr/src/"); err != nil {
		return err
	}
	// Without it no type information is made, and no pahole needed.
	if err := os.Remove(filepath.Join(headers, "vmlinux")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// substitute replaces words in a file, which must be there.
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

// extractSIW takes the folder of siw out of an archive, compressed, within an
// archive, within a package.
func extractSIW(ctx context.Context, deb, into string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends programs that are not read to their end
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
			return errors.New("there is no source")
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
	defer func() { cancel(); files.Close(); _ = unxz.Wait() }()
	return extractFolder(source, siwSource, into)
}

// extractFolder takes the files of one folder out of a tar. The source is in order of
// names: what comes behind the folder is not waited for.
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
		in := err == nil && strings.Contains(h.Name, "/"+folder)
		if found > 0 && !in {
			return nil
		}
		if err != nil {
			return fmt.Errorf("it has no %s", folder)
		}
		if !in || h.Typeflag != tar.TypeReg {
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
