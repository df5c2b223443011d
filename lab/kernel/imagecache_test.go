package kernel

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
)

// putImage writes an image with files of some octets into the cache.
func putImage(t *testing.T, c ImageCache, name, recipe string, series Series, version string, built time.Time, files ...string) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out")
	must.Do(t, os.Mkdir(out, 0o755))
	for _, f := range files {
		must.Do(t, os.WriteFile(filepath.Join(out, f), []byte(f), 0o644))
	}
	m := &manifest{Recipe: recipe, Series: series, Release: version + "-amd64", Version: version}
	must.Do(t, c.publish(out, name, m))
	// Find compares the times of building.
	text := must.Get(os.ReadFile(filepath.Join(m.dir, manifestName)))(t)
	then := strings.Replace(string(text), m.Built.Format(time.RFC3339), built.Format(time.RFC3339), 1)
	must.Do(t, os.WriteFile(filepath.Join(m.dir, manifestName), []byte(then), 0o644))
}

func TestFindReturnsLatestCompleteImage(t *testing.T) {
	logged := ""
	c := ImageCache{Dir: t.TempDir(), Log: func(s string) { logged += s }}
	day := func(n int) time.Time { return time.Date(2026, 1, n, 0, 0, 0, 0, time.UTC) }
	ours := hash(currentRecipe)
	putImage(t, c, "6.12-a", ours, Linux612, "6.12.1", day(1), kernelName, baseName)
	putImage(t, c, "6.12-b", ours, Linux612, "6.12.2", day(2), kernelName, baseName)
	putImage(t, c, "6.12-c", ours, Linux612, "6.12.3", day(3), kernelName, baseName)
	putImage(t, c, "6.12-d", "another", Linux612, "6.12.4", day(4), kernelName, baseName)
	putImage(t, c, "siw-6.12.1-amd64-x", siwRecipe, Linux612, "6.12.1", day(5), siwName)
	putImage(t, c, "6.1-z", ours, Linux61, "6.1.9", day(6), kernelName, baseName)
	must.Do(t, os.WriteFile(filepath.Join(c.Dir, "6.12-c", baseName), []byte("cut"), 0o644))

	img, err := c.Find(Linux612, false)
	if err != nil || img.Version != "6.12.2" || img.SIW || img.Kernel != filepath.Join(c.Dir, "6.12-b", kernelName) || len(img.Archives) != 1 {
		t.Errorf("without siw: %+v, %v", img, err)
	}
	if !strings.Contains(logged, "6.12-c: it is damaged") {
		t.Errorf("no message about the damaged image: %q", logged)
	}
	img, err = c.Find(Linux612, true)
	if err != nil || img.Version != "6.12.1" || !img.SIW || len(img.Archives) != 2 {
		t.Errorf("with siw: %+v, %v", img, err)
	}
	_, err = c.Find(Linux61, true)
	var missing *NotBuiltError
	if !errors.As(err, &missing) || !strings.Contains(err.Error(), "no image of Linux 6.1 with siw") {
		t.Errorf("siw of 6.1: %v", err)
	}
	if _, err := c.Find("5.10", false); err == nil || !strings.Contains(err.Error(), "there are 6.1 and 6.12") {
		t.Errorf("5.10: %v", err)
	}
}

func TestBuildLock(t *testing.T) {
	logged := make(chan string, 1)
	c := ImageCache{Dir: t.TempDir(), Log: func(s string) { logged <- s }}
	unlock := must.Get(c.lock(t.Context()))(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	got := make(chan error)
	go func() {
		_, err := c.lock(ctx)
		got <- err
	}()
	if s := <-logged; !strings.Contains(s, "another build") {
		t.Errorf("logged %q", s)
	}
	cause := errors.New("cancelled")
	cancel(cause)
	if err := <-got; !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
	unlock()
	again := must.Get(c.lock(t.Context()))(t)
	again()
}

func TestBuildRemovesStaleWorkDirs(t *testing.T) {
	c := ImageCache{Dir: t.TempDir()}
	old := filepath.Join(c.Dir, "build-123", "tree")
	must.Do(t, os.MkdirAll(old, 0o755))
	work := must.Get(c.newWorkDir())(t)
	if left, _ := filepath.Glob(filepath.Join(c.Dir, "build-*")); !slices.Equal(left, []string{work}) {
		t.Errorf("work directories are %v", left)
	}
}

func TestBuildReportsMissingPrograms(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := ImageCache{Dir: t.TempDir()}.Build(t.Context(), Linux61, true)
	var missing *MissingError
	if !errors.As(err, &missing) {
		t.Skipf("this machine cannot build images: %v", err)
	}
	want := "apt-get, apt-cache, dpkg-deb, xz are missing, for making kernel images; to have it: apt-get install --no-install-recommends apt dpkg xz-utils (Debian, Ubuntu; as root)"
	if err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if err := RequirePrograms("x", "gcc-12", "make"); err == nil || !strings.Contains(err.Error(), "install --no-install-recommends gcc-12 make") {
		t.Errorf("got %v", err)
	}
}

func TestRecipeChangesImage(t *testing.T) {
	a := currentRecipe
	b := a
	b.Programs = append(slices.Clone(a.Programs), "one-more")
	if hash(a) == hash(b) {
		t.Error("a changed recipe keeps the name of the image")
	}
}

const stanzas = `Package: linux-image-6.12-amd64
Version: 6.12.115-2~deb12u1
Architecture: amd64
Depends: linux-base, linux-image-6.12.115+deb12-amd64 (= 6.12.115-2~deb12u1)
SHA256: aa
Size: 1000000

Package: busybox-static
Version: 1:1.35.0-4+b1
Architecture: amd64
SHA256: bb
Size: 2000000
Description: one
 SHA256: not this

Package: busybox-static
Version: 1:1.0
SHA256: cc
`

func TestParseStanzas(t *testing.T) {
	found := parseStanzas(stanzas)
	meta, busybox := found["linux-image-6.12-amd64"], found["busybox-static"]
	if got := meta.dependency("linux-image-6.12."); got != "linux-image-6.12.115+deb12-amd64" {
		t.Errorf("the kernel is %q", got)
	}
	if got := meta.dependency("linux-image-6.1."); got != "" {
		t.Errorf("6.1 found 6.12: %q", got)
	}
	if busybox.SHA256 != "bb" || busybox.file() != "busybox-static_1%3a1.35.0-4+b1_amd64.deb" {
		t.Errorf("busybox is %+v, %s", busybox, busybox.file())
	}
}

func TestSuite(t *testing.T) {
	for text, want := range map[string]string{
		"ID=debian\nVERSION_CODENAME=bookworm\n":  "bookworm",
		"ID=\"debian\"\nVERSION_CODENAME=trixie":  "trixie",
		"ID=ubuntu\nVERSION_CODENAME=noble\n":     "",
		"ID=fedora\nVERSION_CODENAME=\"\"\nX=y\n": "",
	} {
		if got := suiteOf(text); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}

// fakePrograms puts scripts on PATH instead of the machine's programs.
func fakePrograms(t *testing.T, scripts map[string]string) {
	t.Helper()
	dir := testutil.PathWith(t, "cat", "sleep")
	for name, text := range scripts {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text), 0o755))
	}
	t.Setenv("PATH", dir)
}

func TestFindReportsUnknownPackages(t *testing.T) {
	fakePrograms(t, map[string]string{"apt-cache": "cat <<'END'\n" + stanzas + "END\nexit 100\n"})
	a := &apt{listsName: "these lists"}
	all, err := a.find(t.Context(), "busybox-static", "linux-image-6.12-amd64")
	if err != nil || len(all) != 2 || all[0].Name != "busybox-static" {
		t.Errorf("got %v, %v", all, err)
	}
	_, err = a.find(t.Context(), "busybox-static", "perftest", "rdma")
	var unknown *unknownPackageError
	if !errors.As(err, &unknown) || !strings.Contains(err.Error(), "these lists do not have perftest, rdma") {
		t.Errorf("got %v", err)
	}
}

func TestFetchVerifiesHashes(t *testing.T) {
	debs, work := t.TempDir(), t.TempDir()
	p := Package{Name: "right", Version: "1", arch: "all"}
	p.SHA256 = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824" // of hello
	write := func(dir, text string) {
		t.Helper()
		must.Do(t, os.WriteFile(filepath.Join(dir, p.file()), []byte(text), 0o644))
	}
	logged := ""
	a := &apt{debDirs: []string{debs}, logf: func(format string, _ ...any) { logged += format }}

	write(debs, "hello")
	if files, err := a.fetch(t.Context(), work, []Package{p}); err != nil || files[0] != filepath.Join(debs, p.file()) || logged != "" {
		t.Errorf("present file: %v, %v, %q", files, err, logged)
	}
	write(debs, "hellO") // a wrong hash: it is downloaded
	fakePrograms(t, map[string]string{"apt-get": "printf hello >right_1_all.deb"})
	if files, err := a.fetch(t.Context(), work, []Package{p}); err != nil || files[0] != filepath.Join(work, p.file()) || logged == "" {
		t.Errorf("fetched: %v, %v, %q", files, err, logged)
	}
	write(work, "damaged")
	fakePrograms(t, map[string]string{"apt-get": "printf evil >right_1_all.deb"})
	if _, err := a.fetch(t.Context(), work, []Package{p}); err == nil || !strings.Contains(err.Error(), "package right: ") {
		t.Errorf("a wrong package: %v", err)
	}
	fakePrograms(t, map[string]string{"apt-get": "echo 'E: 404 Not Found' >&2; exit 100"})
	a.listsName = "the lists"
	if _, err := a.fetch(t.Context(), work, []Package{p}); err == nil || !strings.Contains(err.Error(), "404 Not Found (are the lists up to date?)") {
		t.Errorf("a missing package: %v", err)
	}
}

func TestAptEndsWithContext(t *testing.T) {
	fakePrograms(t, map[string]string{"apt-cache": "exec sleep 60"})
	cause := errors.New("cancelled")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if _, err := (&apt{}).run(ctx, "", "apt-cache", "show"); !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
}

func TestOwnListsNeedKeyring(t *testing.T) {
	fakePrograms(t, map[string]string{"apt-get": "exit 0"})
	dir, keyring := t.TempDir(), filepath.Join(t.TempDir(), "keyring.gpg")
	a := &apt{logf: func(string, ...any) {}, keyring: keyring}
	err := a.fetchOwnLists(t.Context(), dir, "http://mirror/", "bookworm")
	var missing *MissingError
	if !errors.As(err, &missing) || !strings.Contains(missing.Install, "debian-archive-keyring") {
		t.Errorf("without the key: %v", err)
	}
	must.Do(t, os.WriteFile(keyring, nil, 0o644))
	must.Do(t, a.fetchOwnLists(t.Context(), dir, "http://mirror/", "bookworm"))
	sources, err := os.ReadFile(filepath.Join(dir, "sources.list"))
	for _, want := range []string{"http://mirror/debian bookworm main\n", "http://mirror/debian-security bookworm-security main\n", "signed-by=" + keyring} {
		if err != nil || !strings.Contains(string(sources), want) {
			t.Errorf("%v\n%s\nwant %q", err, sources, want)
		}
	}
	if all := strings.Join(a.options, " "); !strings.Contains(all, "Dir::State::Lists="+dir) || !strings.Contains(all, "SourceParts=/dev/null") {
		t.Errorf("options %s would change the machine's lists", all)
	}
}
