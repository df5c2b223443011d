package report_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/report"
)

// list returns the names of the files in a folder.
func list(t *testing.T, dir string) []string {
	t.Helper()
	entries := must.Get(os.ReadDir(dir))(t)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestWriteFolderWritesThreeFiles(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "runs", "1")
	for range 2 { // the second overwrites the first
		paths := must.Get(report.WriteFolder(dir, sampleRun()))(t)
		if got := strings.Join(list(t, dir), " "); got != "junit.xml report.html result.json" {
			t.Fatalf("the folder holds %s", got)
		}
		for _, p := range []string{paths.Result, paths.JUnit, paths.HTML} {
			if info, err := os.Stat(p); err != nil || info.Size() == 0 || info.Mode().Perm() != 0o644 {
				t.Errorf("%s: %v, %v", p, info, err)
			}
		}
	}
	if run, err := report.ReadFile(filepath.Join(dir, "result.json")); err != nil || len(run.Scenarios) != len(sampleRun().Scenarios) {
		t.Error(err)
	}
}

func TestWriteFolderConcurrently(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	run := sampleRun()
	run.Scenarios = run.Scenarios[:2]
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, err := report.WriteFolder(dir, run); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := list(t, dir); len(got) != 3 {
		t.Errorf("the folder holds %v", got)
	}
}

func TestFolderErrorNamesFailedFiles(t *testing.T) {
	dir := t.TempDir()
	// A folder has the name of the page.
	must.Do(t, os.MkdirAll(filepath.Join(dir, "report.html", "x"), 0o777))
	paths, err := report.WriteFolder(dir, sampleRun())
	var fe *report.FolderError
	if !errors.As(err, &fe) || strings.Join(fe.Failed, " ") != "report.html" || strings.Join(fe.Written, " ") != "result.json junit.xml" {
		t.Fatalf("%v", err)
	}
	if !strings.Contains(err.Error(), filepath.Join(dir, "report.html")+" was not written") || !strings.Contains(err.Error(), "(written: result.json, junit.xml)") {
		t.Error(err)
	}
	if paths.HTML != "" || paths.Result == "" || paths.JUnit == "" {
		t.Errorf("%+v", paths)
	}
	if got := strings.Join(list(t, dir), " "); got != "junit.xml report.html result.json" {
		t.Errorf("the folder holds %s", got)
	}
}

func TestWriteFolderFailsWithoutFolder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	must.Do(t, os.WriteFile(file, nil, 0o666))
	_, err := report.WriteFolder(filepath.Join(file, "run"), sampleRun())
	var fe *report.FolderError
	if !errors.As(err, &fe) || len(fe.Failed) != 3 || len(fe.Written) != 0 {
		t.Error(err)
	}
}
