package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// runsKept is how many runs stay in the user's cache.
const runsKept = 20

// resultFile is what makes a folder one of a run that ended.
const resultFile = "result.json"

// newFolder makes the folder of a run: out, or a new one in the user's cache.
func newFolder(out string, now time.Time) (dir string, err error) {
	if out == "" {
		return newCached(now)
	}
	entries, err := os.ReadDir(out)
	switch {
	case err == nil && len(entries) > 0:
		return "", usagef("--out %s: the folder holds something already: name another, or remove it", out)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return "", usagef("--out %s: %w", out, err)
	}
	if err := os.MkdirAll(out, 0o777); err != nil {
		return "", usagef("--out: %w: name a folder that can be made", err)
	}
	return out, nil
}

// runsFolder is where runs go that were not told where to.
func runsFolder() string {
	cache, err := os.UserCacheDir()
	if err == nil {
		dir := filepath.Join(cache, "fabrictest", "runs")
		if os.MkdirAll(dir, 0o777) == nil {
			return dir
		}
	}
	// No home, or none that can be written to: a system user's, in a container.
	return filepath.Join(os.TempDir(), fmt.Sprintf("fabrictest-%d", os.Getuid()), "runs")
}

// newCached makes a folder named by the time; of several runs that begin in the
// same second each gets its own.
func newCached(now time.Time) (string, error) {
	root := runsFolder()
	if err := os.MkdirAll(root, 0o700); err != nil {
		return "", fmt.Errorf("%w: say with --out where results go", err)
	}
	prune(root)
	name := now.Format("20060102-150405")
	for i := 1; ; i++ {
		dir := filepath.Join(root, name)
		if i > 1 {
			dir += fmt.Sprintf("-%d", i)
		}
		err := os.Mkdir(dir, 0o777)
		if err == nil || !errors.Is(err, fs.ErrExist) || i == 1000 {
			return dir, err
		}
	}
}

// prune removes the oldest runs. A folder without a result is one of a run that
// still goes on, or that was killed: it goes after a day.
func prune(root string) {
	entries, err := os.ReadDir(root)
	if err != nil {
		return
	}
	var ended []string
	for _, e := range entries {
		dir := filepath.Join(root, e.Name())
		if _, err := os.Stat(filepath.Join(dir, resultFile)); err == nil {
			ended = append(ended, dir)
		} else if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > 24*time.Hour {
			os.RemoveAll(dir)
		}
	}
	slices.Sort(ended) // by their names, which are times
	for len(ended) >= runsKept {
		os.RemoveAll(ended[0])
		ended = ended[1:]
	}
}
