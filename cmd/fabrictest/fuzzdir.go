package main

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const fuzzDirs = "fabrictest-fuzz-"

// fuzzDir is a folder for test programs. It is locked as long as its process lives,
// so that a later run knows what one that was killed has left behind.
type fuzzDir struct {
	path string
	lock *os.File
}

// newFuzzDir also removes folders that nobody holds any more.
func newFuzzDir() (*fuzzDir, error) {
	left, err := filepath.Glob(filepath.Join(os.TempDir(), fuzzDirs+"*"))
	if err != nil {
		return nil, err
	}
	for _, path := range left {
		// One that is being made this moment has no lock yet, and is not touched;
		// another user's cannot be opened.
		if d, err := holdFuzzDir(path, os.O_RDWR); err == nil {
			d.close()
		}
	}
	path, err := os.MkdirTemp("", fuzzDirs)
	if err != nil {
		return nil, err
	}
	d, err := holdFuzzDir(path, os.O_RDWR|os.O_CREATE)
	if err != nil {
		_ = os.RemoveAll(path)
	}
	return d, err
}

func holdFuzzDir(path string, flags int) (*fuzzDir, error) {
	f, err := os.OpenFile(filepath.Join(path, "lock"), flags, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, err
	}
	return &fuzzDir{path: path, lock: f}, nil
}

func (d *fuzzDir) close() {
	_ = os.RemoveAll(d.path)
	_ = d.lock.Close()
}
