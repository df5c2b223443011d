package launch

import (
	"bytes"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

func onMainThread() bool { return unix.Gettid() == unix.Getpid() }

// waitWithoutReaping waits until a child has exited and leaves it a zombie. It reports
// whether that is possible.
func waitWithoutReaping(pid int) bool {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err == nil
		}
	}
}

// maxrssUnit is the unit of Rusage.Maxrss in bytes.
const maxrssUnit = 1024

// readPeakRSS returns the peak resident set size (VmHWM). Rusage is no replacement:
// the Maxrss of a child starts at the RSS of its parent at the fork.
func readPeakRSS(pid int) (int64, bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, false
	}
	_, rest, ok := bytes.Cut(b, []byte("\nVmHWM:"))
	if !ok {
		return 0, false
	}
	field := bytes.Fields(rest)
	if len(field) < 2 {
		return 0, false
	}
	kib, err := strconv.ParseInt(string(field[0]), 10, 64)
	return kib << 10, err == nil
}

// isGoProcess reports whether a process runs a Go program, which prints its
// goroutines on SIGQUIT.
func isGoProcess(pid int) bool {
	_, err := buildinfo.ReadFile(fmt.Sprintf("/proc/%d/exe", pid))
	return err == nil
}
