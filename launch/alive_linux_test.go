package launch_test

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

const hasPdeathsig = true

// startOnDyingThread starts cmd on a thread that exits, which Spec.Start must not do.
func startOnDyingThread(cmd *exec.Cmd, done chan<- error) {
	runtime.LockOSThread()
	if unix.Gettid() != unix.Getpid() {
		done <- cmd.Start()
		return // the thread exits
	}
	// The main thread does not exit; block it while another one runs.
	other := make(chan error)
	go startOnDyingThread(cmd, other)
	done <- <-other
	runtime.UnlockOSThread()
}

// isRunning reports whether a process exists and is not a zombie.
func isRunning(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(b[strings.LastIndex(string(b), ")"):]), " ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}
