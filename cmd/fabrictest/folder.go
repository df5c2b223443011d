package main

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

	"github.com/fabrictest/fabrictest/internal/cmdline"
	"github.com/fabrictest/fabrictest/report/ranks"
)

// runsKept is how many runs of each kind stay in the user's cache.
const runsKept = 20

// resultFile is what makes a folder one of a run of scenarios that ended, and
// verdictFile one of a judgement of devices.
const (
	resultFile  = "result.json"
	verdictFile = "conformance.json"
)

// cache is where runs of a kind go that were not told where to.
type cache struct {
	folder string // in the user's cache
	result string // the file that makes a folder one of a run that ended
}

var (
	runs       = cache{"runs", resultFile}
	judgements = cache{"conform", verdictFile}
	rankRuns   = cache{"ranks", ranks.ResultFile}
)

// newFolder makes the folder of a run: out, or a new one in the user's cache.
func (c cache) newFolder(out string, now time.Time) (dir string, err error) {
	if out == "" {
		return c.newCached(now)
	}
	entries, err := os.ReadDir(out)
	switch {
	case err == nil && len(entries) > 0:
		return "", cmdline.Errorf("--out %s: the folder holds something already: name another, or remove it", out)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return "", cmdline.Errorf("--out %s: %w", out, err)
	}
	if err := os.MkdirAll(out, 0o777); err != nil {
		return "", cmdline.Errorf("--out: %w: name a folder that can be made", err)
	}
	return out, nil
}

// root is the folder of all of them.
func (c cache) root() (string, error) {
	user, err := os.UserCacheDir()
	if err == nil {
		dir := filepath.Join(user, "fabrictest", c.folder)
		if os.MkdirAll(dir, 0o777) == nil {
			return dir, nil
		}
	}
	// No home, or none that can be written to: a system user's, in a container.
	base := filepath.Join(os.TempDir(), fmt.Sprintf("fabrictest-%d", os.Getuid()))
	all := filepath.Join(base, c.folder)
	for _, dir := range []string{base, all} {
		if err := ownFolder(dir); err != nil {
			return "", fmt.Errorf("%w: say with --out where results go, or set XDG_CACHE_HOME", err)
		}
	}
	return all, nil
}

// ownFolder makes a folder where anybody may make one, or sees to it that the one
// there is ours and nobody else's: old runs are removed from it.
func ownFolder(dir string) error {
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
		return fmt.Errorf("%s is no folder", dir)
	case !ok || int(owner.Uid) != os.Getuid():
		return fmt.Errorf("%s is not this user's", dir)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%s can be written to by others", dir)
	}
	return nil
}

// newCached makes a folder named by the time; of several runs that begin in the
// same second each gets its own.
func (c cache) newCached(now time.Time) (string, error) {
	root, err := c.root()
	if err != nil {
		// Somebody took the name before us, but nobody can take this one.
		if root, err = os.MkdirTemp("", "fabrictest-"); err != nil {
			return "", fmt.Errorf("%w: say with --out where results go", err)
		}
	}
	c.prune(root)
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

// runName is what newCached calls folders: nothing else in there is ours.
var runName = regexp.MustCompile(`^\d{8}-\d{6}(-\d+)?$`)

// ended are the runs in a folder that have a result, the oldest first.
func (c cache) ended(folder string) (names []string) {
	entries, _ := os.ReadDir(folder) // sorted by name; no folder, no runs
	for _, e := range entries {
		if !e.IsDir() || !runName.MatchString(e.Name()) {
			continue
		}
		if _, err := os.Stat(filepath.Join(folder, e.Name(), c.result)); err == nil {
			names = append(names, e.Name())
		}
	}
	slices.SortFunc(names, byTime)
	return names
}

// byTime orders the names of runs: the tenth of a second is after its ninth.
func byTime(a, b string) int {
	const stamp = len("20060102-150405")
	if a[:stamp] == b[:stamp] && len(a) != len(b) {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}

// prune removes the oldest runs. A folder without a result is one of a run that
// still goes on, or that was killed: it goes after a day.
func (c cache) prune(folder string) {
	root, err := os.OpenRoot(folder) // so that no link leads out of it
	if err != nil {
		return
	}
	defer root.Close()
	ended := c.ended(folder)
	entries, _ := os.ReadDir(folder)
	for _, e := range entries {
		if !runName.MatchString(e.Name()) || slices.Contains(ended, e.Name()) {
			continue
		}
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > 24*time.Hour {
			_ = root.RemoveAll(e.Name()) // the next run tries again
		}
	}
	for len(ended) >= runsKept {
		_ = root.RemoveAll(ended[0])
		ended = ended[1:]
	}
}
