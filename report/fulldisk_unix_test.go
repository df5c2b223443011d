//go:build unix

package report_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/report"
)

// TestFullDiskLeavesNoPartialFiles writes with a limit on the size of files that only the JUnit
// file does not exceed. This needs neither a small disk nor privileges. The limit is of a process,
// so another one writes.
func TestFullDiskLeavesNoPartialFiles(t *testing.T) {
	const limit = 64 << 10
	if dir := os.Getenv("FABRICTEST_FULL_DISK"); dir != "" {
		signal.Ignore(syscall.SIGXFSZ)
		must.Do(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: limit, Max: limit}))
		paths, err := report.WriteFolder(dir, sampleRun())
		var fe *report.FolderError
		if !errors.As(err, &fe) || !errors.Is(err, syscall.EFBIG) {
			t.Fatalf("%v", err)
		}
		fmt.Printf("failed %v, written %v, %s\n%v\n", fe.Failed, fe.Written, filepath.Base(paths.JUnit), err)
		return
	}
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^TestFullDiskLeavesNoPartialFiles$")
	cmd.Env = append(os.Environ(), "FABRICTEST_FULL_DISK="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(string(out), "failed [result.json report.html], written [junit.xml], junit.xml") {
		t.Errorf("%s", out)
	}
	if !strings.Contains(string(out), "result.json was not written: file too large") {
		t.Errorf("the reason is missing:\n%s", out)
	}
	if got := strings.Join(list(t, dir), " "); got != "junit.xml" {
		t.Errorf("the folder holds %s", got)
	}
}
