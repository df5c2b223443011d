package uswitch

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const inUserNS = "FABRICTEST_USWITCH_USERNS"

// TestMain restarts the tests in a user namespace if this user cannot create network namespaces.
func TestMain(m *testing.M) {
	why := onOwnThread(func() error { return unix.Unshare(unix.CLONE_NEWNET) })
	if why == nil || !errors.Is(why, unix.EPERM) || os.Getenv(inUserNS) != "" {
		os.Exit(m.Run())
	}
	runtime.LockOSThread() // Pdeathsig follows the thread that starts the child
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), inUserNS+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		os.Exit(0)
	case errors.As(err, &exit) && exit.Exited():
		os.Exit(exit.ExitCode())
	}
	fmt.Fprintln(os.Stderr, "no user namespace: tests that need network namespaces are skipped:", err)
	os.Exit(m.Run())
}

// onOwnThread runs fn on a thread that ends with it.
func onOwnThread(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		done <- fn()
	}()
	return <-done
}
