package kernel

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// reaperRole makes the test binary a process that reaps all children, as init of a guest
// does. In the process of the tests it would reap children of other tests.
const reaperRole = "FABRICTEST_GUEST_REAPER"

func TestReaperReapsOrphans(t *testing.T) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), reaperRole+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func runReaper() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	r := newReaper()
	if err := r.run("/bin/sh", "-c", "echo because >&2; exit 4"); err == nil || err.Error() != "/bin/sh -c echo because >&2; exit 4: exit code 4: because" {
		return fmt.Errorf("a program that fails: %w", err)
	}
	if err := r.run("/no/such"); err == nil {
		return fmt.Errorf("a missing program ran")
	}
	if err := r.run("/bin/sh", "-c", "(sleep 0.2 &) ; (sleep 0.1 &)"); err != nil {
		return err
	}
	for range 20 { // the exit of a child that ends at once is not lost
		if err := r.run("/bin/true"); err != nil {
			return err
		}
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		remaining := children()
		if remaining == "" {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("children remain: %s", remaining)
		}
	}
}

func children() string {
	all := ""
	files, _ := filepath.Glob("/proc/self/task/*/children")
	for _, f := range files {
		text, _ := os.ReadFile(f)
		all += string(text)
	}
	return strings.TrimSpace(all)
}
