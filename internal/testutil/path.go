package testutil

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// PathWith returns a temporary directory with symbolic links to the named programs. It fails
// the test if one is not installed.
func PathWith(tb testing.TB, programs ...string) string {
	tb.Helper()
	dir := tb.TempDir()
	for _, name := range programs {
		found, err := exec.LookPath(name)
		if err == nil {
			found, err = filepath.Abs(found)
		}
		if err == nil {
			err = os.Symlink(found, filepath.Join(dir, name))
		}
		if err != nil {
			tb.Fatalf("this test needs %s: %v", name, err)
		}
	}
	return dir
}
