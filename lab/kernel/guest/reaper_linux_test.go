package guest

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

// reaperRole has the test binary be a process that waits for all children, as the
// first of a guest does: in the tests' own it would take them from others.
const reaperRole = "FABRICTEST_GUEST_REAPER"

func TestMain(m *testing.M) {
	if os.Getenv(reaperRole) != "" {
		if err := reapHere(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestReaperReapsOrphans(t *testing.T) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), reaperRole+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func reapHere() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	r := newReaper()
	if err := r.run("/bin/sh", "-c", "echo because >&2; exit 4"); err == nil || err.Error() != "/bin/sh -c echo because >&2; exit 4: exit code 4: because" {
		return fmt.Errorf("of a failure: %w", err)
	}
	if err := r.run("/no/such"); err == nil {
		return fmt.Errorf("a program that is not there ran")
	}
	if err := r.run("/bin/sh", "-c", "(sleep 0.2 &) ; (sleep 0.1 &)"); err != nil {
		return err
	}
	for range 20 { // a child that ends at once is not lost
		if err := r.run("/bin/true"); err != nil {
			return err
		}
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		left := children()
		if left == "" {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("children are left: %s", left)
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
