package report

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fabrictest/fabrictest/internal/cli"
)

// RunsKept is how many runs of each kind are kept in the user's cache.
const RunsKept = 20

// ResultFile is the name of the result in the folder of a run.
const ResultFile = "result.json"

// Cache is a folder of the user's cache with the latest runs of one kind.
type Cache struct {
	Folder string // its name in the user's cache
	Result string // the file that a run writes at its end
}

// NewFolder makes and returns the folder of a run: out (the value of --out), which must be empty
// or not exist, or a new folder in the user's cache if out is "".
func (c Cache) NewFolder(out string, now time.Time) (dir string, err error) {
	if out == "" {
		return c.newCachedFolder(now)
	}
	entries, err := os.ReadDir(out)
	switch {
	case err == nil && len(entries) > 0:
		return "", cli.Errorf("--out %s: the folder is not empty: name another, or remove it", out)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return "", cli.Errorf("--out %s: %w", out, err)
	}
	if err := os.MkdirAll(out, 0o777); err != nil {
		return "", cli.Errorf("--out: %w: name a folder that can be made", err)
	}
	return out, nil
}

// Root makes the folder of the cached runs, if there is none, and returns it: in the user's
// cache, or in the temporary directory if the cache cannot be written to.
func (c Cache) Root() (string, error) {
	user, err := os.UserCacheDir()
	if err == nil {
		dir := filepath.Join(user, "fabrictest", c.Folder)
		if os.MkdirAll(dir, 0o777) == nil {
			return dir, nil
		}
	}
	// A system user in a container may have no home that can be written to.
	parent := filepath.Join(os.TempDir(), fmt.Sprintf("fabrictest-%d", os.Getuid()))
	root := filepath.Join(parent, c.Folder)
	for _, dir := range []string{parent, root} {
		if err := makeOwnFolder(dir); err != nil {
			return "", fmt.Errorf("%w: say with --out where results go, or set XDG_CACHE_HOME", err)
		}
	}
	return root, nil
}

// Last returns the folder of the latest run in the cache that has a result.
func (c Cache) Last() (string, error) {
	root, err := c.Root()
	if err != nil {
		return "", err
	}
	ended := c.EndedRuns(root)
	if len(ended) == 0 {
		return "", cli.Errorf("there is no run in %s", root)
	}
	return filepath.Join(root, ended[len(ended)-1]), nil
}

// makeOwnFolder makes a folder, if it does not exist, in a directory that all users can write to.
// It must belong to this user and be writable by no other, because old runs are removed from it.
func makeOwnFolder(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return fmt.Errorf("%s is not a folder", dir)
	case !ok || int(owner.Uid) != os.Getuid():
		return fmt.Errorf("%s belongs to another user", dir)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("other users can write to %s", dir)
	}
	return nil
}

// newCachedFolder removes old runs from the cache, and makes a folder there whose name is the
// time, with a number for later runs of the same second.
func (c Cache) newCachedFolder(now time.Time) (string, error) {
	root, err := c.Root()
	if err != nil {
		// Another user may own the cache's place in the temporary directory: use a new folder.
		if root, err = os.MkdirTemp("", "fabrictest-"); err != nil {
			return "", fmt.Errorf("%w: say with --out where results go", err)
		}
	}
	c.prune(root)
	name := now.Format("20060102-150405")
	const maxTries = 1000
	for i := 1; ; i++ {
		dir := filepath.Join(root, name)
		if i > 1 {
			dir += fmt.Sprintf("-%d", i)
		}
		err := os.Mkdir(dir, 0o777)
		if err == nil || !errors.Is(err, fs.ErrExist) || i == maxTries {
			return dir, err
		}
	}
}

// runNamePattern matches the names that newCachedFolder gives. Others are left alone.
var runNamePattern = regexp.MustCompile(`^\d{8}-\d{6}(-\d+)?$`)

// EndedRuns returns the names of the runs in a folder that have a result, the oldest first.
func (c Cache) EndedRuns(folder string) (names []string) {
	entries, _ := os.ReadDir(folder) // a folder that does not exist has no runs
	for _, e := range entries {
		if !e.IsDir() || !runNamePattern.MatchString(e.Name()) {
			continue
		}
		if _, err := os.Stat(filepath.Join(folder, e.Name(), c.Result)); err == nil {
			names = append(names, e.Name())
		}
	}
	slices.SortFunc(names, byTime)
	return names
}

// byTime compares names of runs (runNamePattern) by time: run 10 of a second is later than run 9.
func byTime(a, b string) int {
	const stamp = len("20060102-150405")
	if a[:stamp] == b[:stamp] && len(a) != len(b) {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}

// prune removes the oldest runs with a result, so that there are RunsKept after one more run. A run
// without a result has not ended or was killed; prune removes it after a day.
func (c Cache) prune(folder string) {
	root, err := os.OpenRoot(folder) // symbolic links must not lead out of it
	if err != nil {
		return
	}
	defer root.Close()
	ended := c.EndedRuns(folder)
	entries, _ := os.ReadDir(folder)
	for _, e := range entries {
		if !runNamePattern.MatchString(e.Name()) || slices.Contains(ended, e.Name()) {
			continue
		}
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > 24*time.Hour {
			_ = root.RemoveAll(e.Name()) // the next run tries again
		}
	}
	for len(ended) >= RunsKept {
		_ = root.RemoveAll(ended[0])
		ended = ended[1:]
	}
}
