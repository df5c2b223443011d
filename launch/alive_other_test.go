//go:build !linux

package launch_test

import (
	"os/exec"
	"syscall"
)

const hasPdeathsig = false

func startOnDyingThread(*exec.Cmd, chan<- error) {}

func isRunning(pid int) bool { return syscall.Kill(pid, 0) == nil }
