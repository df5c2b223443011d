// Package testpath gives tests a PATH of their own, so that they do not depend on the
// programs that happen to be installed.
package testpath

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Of returns a folder for PATH that has these programs of this machine, and no others.
func Of(tb testing.TB, programs ...string) string {
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
