package fuzz

import (
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const tempDirPrefix = "fabrictest-fuzz-"

// tempDir is a folder for test programs. Its process keeps it locked, so that a later
// run can remove the folder of a process that was killed.
type tempDir struct {
	path string
	lock *os.File
}

// newTempDir creates a folder for test programs and locks it. It also removes the folders of killed
// processes: those that no process locks any more.
func newTempDir() (*tempDir, error) {
	existing, err := filepath.Glob(filepath.Join(os.TempDir(), tempDirPrefix+"*"))
	if err != nil {
		return nil, err
	}
	for _, path := range existing { // another user's lock cannot be opened
		if d, err := lockDir(path, os.O_RDWR); err == nil {
			d.remove()
		}
	}
	// The folder gets its name when it is locked: until then no other process removes it.
	unlocked, err := os.MkdirTemp("", "fabrictest-new-")
	if err != nil {
		return nil, err
	}
	d, err := lockDir(unlocked, os.O_RDWR|os.O_CREATE)
	if err == nil {
		d.path = strings.Replace(unlocked, "fabrictest-new-", tempDirPrefix, 1)
		err = os.Rename(unlocked, d.path)
	}
	if err != nil {
		_ = os.RemoveAll(unlocked)
		return nil, err
	}
	return d, nil
}

// lockDir locks a temporary folder by a lock file in it, which it opens with flags, as
// os.OpenFile does. It fails if another process holds the lock.
func lockDir(path string, flags int) (*tempDir, error) {
	f, err := os.OpenFile(filepath.Join(path, "lock"), flags, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, err
	}
	return &tempDir{path: path, lock: f}, nil
}

// remove removes the folder and releases its lock.
func (d *tempDir) remove() {
	_ = os.RemoveAll(d.path)
	_ = d.lock.Close()
}
