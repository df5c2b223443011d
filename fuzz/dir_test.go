package fuzz

import (
	"errors"
	"io/fs"
	"os"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
)

// A new run removes the folders of killed processes, and keeps those in use.
func TestTempDirsOfKilledProcessesAreRemoved(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	killed := must.Get(newTempDir())(t)
	held := must.Get(newTempDir())(t)
	defer held.close()
	_ = killed.lock.Close() // as the kernel does for the dead
	next := must.Get(newTempDir())(t)
	if _, err := os.Stat(killed.path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is still there: %v", killed.path, err)
	}
	if _, err := os.Stat(held.path); err != nil {
		t.Errorf("it took a folder in use: %v", err)
	}
	next.close()
	if _, err := os.Stat(next.path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is still there: %v", next.path, err)
	}
}
