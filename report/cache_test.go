package report

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
)

var runs = Cache{Folder: "runs", Result: ResultFile}

// In a directory that all users can write to, a folder that others can write to is not used: they
// would choose the runs that are removed.
func TestRunFolderIsNotWritableByOthers(t *testing.T) {
	t.Setenv("HOME", "")
	t.Setenv("XDG_CACHE_HOME", "")
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	for what, prepare := range map[string]func(base, elsewhere string) error{
		"nothing there": func(string, string) error { return nil },
		"a link":        func(base, elsewhere string) error { return os.Symlink(elsewhere, base) },
		"a link in it": func(base, elsewhere string) error {
			return errors.Join(os.Mkdir(base, 0o700), os.Symlink(elsewhere, base+"/runs"))
		},
		"a file":         func(base, _ string) error { return os.WriteFile(base, nil, 0o600) },
		"open to others": func(base, _ string) error { return errors.Join(os.Mkdir(base, 0o700), os.Chmod(base, 0o777)) },
		"another user's": func(base, _ string) error {
			if os.Getuid() != 0 {
				return os.Symlink("/", base) // only root can chown
			}
			return errors.Join(os.Mkdir(base, 0o700), os.Chown(base, 65534, 65534))
		},
	} {
		tmp, elsewhere := t.TempDir(), t.TempDir()
		t.Setenv("TMPDIR", tmp)
		base := filepath.Join(tmp, fmt.Sprintf("fabrictest-%d", os.Getuid()))
		must.Do(t, prepare(base, elsewhere))
		dir, err := runs.NewFolder("", now)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if inside := strings.HasPrefix(dir, base+"/"); inside != (what == "nothing there") {
			t.Errorf("%s: the run goes to %s", what, dir)
		}
		if left, _ := os.ReadDir(elsewhere); len(left) > 0 {
			t.Errorf("%s: %v was created elsewhere", what, left)
		}
		if _, err := runs.Last(); what != "nothing there" && (err == nil || !strings.Contains(err.Error(), base)) {
			t.Errorf("%s: the last run: %v", what, err)
		}
	}
}

// Prune removes only folders with the name of a run, and follows no links.
func TestPruneRemovesOnlyRuns(t *testing.T) {
	root, elsewhere := t.TempDir(), t.TempDir()
	otherFile := filepath.Join(elsewhere, "thesis.tex")
	old := time.Now().Add(-100 * time.Hour)
	for _, err := range []error{
		os.WriteFile(otherFile, []byte("years of work"), 0o666),
		os.Symlink(elsewhere, filepath.Join(root, "20010101-000000")),
		os.Mkdir(filepath.Join(root, "thesis"), 0o777),
		os.Mkdir(filepath.Join(root, "20010101-000000-draft"), 0o777),
		os.Mkdir(filepath.Join(root, "20010101-000001"), 0o777), // a killed run
		os.Mkdir(filepath.Join(root, "20010101-000002"), 0o777), // a running one
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"thesis", "20010101-000000-draft", "20010101-000001"} {
		must.Do(t, os.Chtimes(filepath.Join(root, name), old, old))
	}
	runs.prune(root)
	for name, stays := range map[string]bool{"thesis": true, "20010101-000000-draft": true, "20010101-000001": false, "20010101-000002": true} {
		if _, err := os.Lstat(filepath.Join(root, name)); (err == nil) != stays {
			t.Errorf("%s: %v", name, err)
		}
	}
	if text, err := os.ReadFile(otherFile); string(text) != "years of work" {
		t.Errorf("%q, %v", text, err)
	}
}

func TestRunsAreOrderedByTime(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"20300102-030405", "20300102-030405-2", "20300102-030405-10", "20300102-030406", "notes"} {
		must.Do(t, errors.Join(os.Mkdir(filepath.Join(root, name), 0o777), os.WriteFile(filepath.Join(root, name, ResultFile), nil, 0o666)))
	}
	if got := strings.Join(runs.EndedRuns(root), " "); got != "20300102-030405 20300102-030405-2 20300102-030405-10 20300102-030406" {
		t.Error(got)
	}
}

// The cache keeps the latest runs.
func TestOldRunsAreRemoved(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	var first, last string
	for i := range RunsKept + 5 {
		dir := must.Get(runs.NewFolder("", now))(t)
		must.Do(t, os.WriteFile(filepath.Join(dir, ResultFile), []byte("{}"), 0o666))
		if i == 0 {
			first = dir
		}
		last = dir
		if i > RunsKept {
			now = now.Add(time.Hour)
		}
	}
	left, _ := filepath.Glob(filepath.Join(filepath.Dir(last), "*"))
	if _, err := os.Stat(first); len(left) != RunsKept || err == nil {
		t.Errorf("%d runs remain, and the first: %v", len(left), err)
	}
	if _, err := os.Stat(last); err != nil {
		t.Error(err)
	}
}

func TestCutKeepsWordsAndValidText(t *testing.T) {
	for text, want := range map[string]string{
		"short": "short", "a few more words": "a few …", "unbroken words": "unbr …", "\xff\xff\xff\xff\xff\xff\xff\xff\xff": " …",
	} {
		if got := cut(text, 8); got != want {
			t.Errorf("%q is cut to %q, want %q", text, got, want)
		}
	}
}
