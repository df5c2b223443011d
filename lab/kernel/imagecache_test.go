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
)

// put keeps an image of a few octets.
func put(t *testing.T, c ImageCache, name, recipe string, series Series, version string, built time.Time, files ...string) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out")
	must.Do(t, os.Mkdir(out, 0o755))
	for _, f := range files {
		must.Do(t, os.WriteFile(filepath.Join(out, f), []byte(f), 0o644))
	}
	m := &manifest{Recipe: recipe, Series: series, Release: version + "-amd64", Version: version}
	must.Do(t, c.publish(out, name, m))
	// When it was made decides which is found.
	text := must.Get(os.ReadFile(filepath.Join(m.dir, manifestName)))(t)
	then := strings.Replace(string(text), m.Built.Format(time.RFC3339), built.Format(time.RFC3339), 1)
	must.Do(t, os.WriteFile(filepath.Join(m.dir, manifestName), []byte(then), 0o644))
}

func TestFindReturnsLatestCompleteImage(t *testing.T) {
	said := ""
	c := ImageCache{Dir: t.TempDir(), Log: func(s string) { said += s }}
	day := func(n int) time.Time { return time.Date(2026, 1, n, 0, 0, 0, 0, time.UTC) }
	ours := hash(currentRecipe)
	put(t, c, "6.12-a", ours, Linux612, "6.12.1", day(1), kernelName, baseName)
	put(t, c, "6.12-b", ours, Linux612, "6.12.2", day(2), kernelName, baseName)
	put(t, c, "6.12-c", ours, Linux612, "6.12.3", day(3), kernelName, baseName)
	put(t, c, "6.12-d", "another", Linux612, "6.12.4", day(4), kernelName, baseName)
	put(t, c, "siw-6.12.1-amd64-x", siwRecipe, Linux612, "6.12.1", day(5), siwName)
	put(t, c, "6.1-z", ours, Linux61, "6.1.9", day(6), kernelName, baseName)
	must.Do(t, os.WriteFile(filepath.Join(c.Dir, "6.12-c", baseName), []byte("cut"), 0o644))

	img, err := c.Find(Linux612, false)
	if err != nil || img.Version != "6.12.2" || img.SIW || img.Kernel != filepath.Join(c.Dir, "6.12-b", kernelName) || len(img.Archives) != 1 {
		t.Errorf("without siw: %+v, %v", img, err)
	}
	if !strings.Contains(said, "6.12-c: it is damaged") {
		t.Errorf("nothing was said of the damaged one: %q", said)
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
	said := make(chan string, 1)
	c := ImageCache{Dir: t.TempDir(), Log: func(s string) { said <- s }}
	unlock := must.Get(c.lock(t.Context()))(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	got := make(chan error)
	go func() {
		_, err := c.lock(ctx)
		got <- err
	}()
	if s := <-said; !strings.Contains(s, "another build") {
		t.Errorf("said %q", s)
	}
	why := errors.New("enough")
	cancel(why)
	if err := <-got; !errors.Is(err, why) {
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
		t.Errorf("there are %v", left)
	}
}

func TestBuildReportsMissingPrograms(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := ImageCache{Dir: t.TempDir()}.Build(t.Context(), Linux61, true)
	var missing *MissingError
	if !errors.As(err, &missing) {
		t.Skipf("no images are made on this machine: %v", err)
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
	if hash(a) == hash(b) || partName("6.1", a) == partName("6.1", b) {
		t.Error("a changed recipe makes an image of the same name")
	}
}
