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

// startOnDyingThread does what Spec.Start must not.
func startOnDyingThread(cmd *exec.Cmd, done chan<- error) {
	runtime.LockOSThread()
	if unix.Gettid() != unix.Getpid() {
		done <- cmd.Start()
		return // and the thread with it
	}
	// The main thread would live on; keep it busy while another goes ahead.
	other := make(chan error)
	go startOnDyingThread(cmd, other)
	done <- <-other
	runtime.UnlockOSThread()
}

// alive says whether a process runs; a zombie does not.
func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(b[strings.LastIndex(string(b), ")"):]), " ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}
