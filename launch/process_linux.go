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

func processAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

func onMainThread() bool { return unix.Gettid() == unix.Getpid() }

// waitExited returns when a child has ended, and leaves it to be reaped. It says
// whether it could wait at all.
func waitExited(pid int) bool {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err == nil
		}
	}
}

// rssUnit is that of Rusage.Maxrss, in bytes.
const rssUnit = 1024

// peakRSS reads how much memory a process has had resident at most. Rusage has
// such a figure too, but that of a child begins at what its parent had when it
// forked, however small the child is.
func peakRSS(pid int) (int64, bool) {
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

// isGo says whether a process runs a Go program, which prints its goroutines on
// SIGQUIT.
func isGo(pid int) bool {
	_, err := buildinfo.ReadFile(fmt.Sprintf("/proc/%d/exe", pid))
	return err == nil
}
