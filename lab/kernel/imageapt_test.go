package kernel

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
)

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
		t.Errorf("6.12 was taken for 6.1: %q", got)
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

// fakes puts scripts on PATH in place of the machine's programs.
func fakes(t *testing.T, scripts map[string]string) {
	t.Helper()
	dir := testutil.PathWith(t, "cat", "sleep")
	for name, text := range scripts {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text), 0o755))
	}
	t.Setenv("PATH", dir)
}

func TestFindReportsUnknownPackages(t *testing.T) {
	fakes(t, map[string]string{"apt-cache": "cat <<'END'\n" + stanzas + "END\nexit 100\n"})
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
	have, work := t.TempDir(), t.TempDir()
	p := Package{Name: "right", Version: "1", arch: "all"}
	p.SHA256 = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824" // of hello
	write := func(dir, text string) {
		t.Helper()
		must.Do(t, os.WriteFile(filepath.Join(dir, p.file()), []byte(text), 0o644))
	}
	said := ""
	a := &apt{debDirs: []string{have}, logf: func(format string, _ ...any) { said += format }}

	write(have, "hello")
	if files, err := a.fetch(t.Context(), work, []Package{p}); err != nil || files[0] != filepath.Join(have, p.file()) || said != "" {
		t.Errorf("of what is there: %v, %v, %q", files, err, said)
	}
	write(have, "hellO") // another one: it is fetched
	fakes(t, map[string]string{"apt-get": "printf hello >right_1_all.deb"})
	if files, err := a.fetch(t.Context(), work, []Package{p}); err != nil || files[0] != filepath.Join(work, p.file()) || said == "" {
		t.Errorf("fetched: %v, %v, %q", files, err, said)
	}
	write(work, "damaged")
	fakes(t, map[string]string{"apt-get": "printf evil >right_1_all.deb"})
	if _, err := a.fetch(t.Context(), work, []Package{p}); err == nil || !strings.Contains(err.Error(), "package right: ") {
		t.Errorf("a wrong package: %v", err)
	}
	fakes(t, map[string]string{"apt-get": "echo 'E: 404 Not Found' >&2; exit 100"})
	a.listsName = "the lists"
	if _, err := a.fetch(t.Context(), work, []Package{p}); err == nil || !strings.Contains(err.Error(), "404 Not Found (are the lists up to date?)") {
		t.Errorf("a package that is gone: %v", err)
	}
}

func TestAptEndsWithContext(t *testing.T) {
	fakes(t, map[string]string{"apt-cache": "exec sleep 60"})
	why := errors.New("no patience")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if _, err := (&apt{}).run(ctx, "", "apt-cache", "show"); !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
}

func TestOwnListsNeedKeyring(t *testing.T) {
	fakes(t, map[string]string{"apt-get": `printf '%s\n' "$@" >"${0%/*}/said"`})
	dir, a := t.TempDir(), &apt{logf: func(string, ...any) {}}
	keyring := filepath.Join(t.TempDir(), "keyring.gpg")
	err := fetchOwnLists(t.Context(), dir, "http://mirror/", "bookworm", keyring, a)
	var missing *MissingError
	if !errors.As(err, &missing) || !strings.Contains(missing.Install, "debian-archive-keyring") {
		t.Errorf("without the key: %v", err)
	}
	must.Do(t, os.WriteFile(keyring, nil, 0o644))
	must.Do(t, fetchOwnLists(t.Context(), dir, "http://mirror/", "bookworm", keyring, a))
	sources, err := os.ReadFile(filepath.Join(dir, "sources.list"))
	for _, want := range []string{"http://mirror/debian bookworm main\n", "http://mirror/debian-security bookworm-security main\n", "signed-by=" + keyring} {
		if err != nil || !strings.Contains(string(sources), want) {
			t.Errorf("%v\n%s\nwant %q", err, sources, want)
		}
	}
	if all := strings.Join(a.options, " "); !strings.Contains(all, "Dir::State::Lists="+dir) || !strings.Contains(all, "SourceParts=/dev/null") {
		t.Errorf("options %s would touch the machine's lists", all)
	}
}
