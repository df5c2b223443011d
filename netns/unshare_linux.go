package netns

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// enclosedMark is in the environment of all that runs in an enclosure.
const enclosedMark = "FABRICTEST_ENCLOSURE"

// IsUnshared says that this process runs in an enclosure.
func IsUnshared() bool { return os.Getenv(enclosedMark) != "" }

// Unshare prepares cmd to be started in namespaces of its own: network, PID and
// mount; and user, where this process lacks the rights to make the others. There
// it is root, and whatever it makes is gone when it ends. Use StartUnshared,
// unless the thread that starts cmd is known to live as long as this process.
//
// In between stands a small process, this program itself under another name, as
// the first of the PID namespace. It takes in orphans, which a program that waits
// for its own children cannot do without taking exits from them; passes on
// SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 (a terminal's SIGINT reaches cmd by
// itself); and ends with cmd's exit code, or 128 and the number of the signal that
// ended it. When the first process ends, however it does, the kernel kills
// all others, and it dies with the process that started it.
func Unshare(cmd *exec.Cmd) error {
	if cmd.Err != nil {
		return cmd.Err
	}
	if cmd.Process != nil {
		return errors.New("enclose: the command was started already")
	}
	self, err := os.Readlink("/proc/self")
	if err != nil {
		return fmt.Errorf("enclose: is /proc mounted? %w", err)
	}
	enclose(cmd, append([]string{initName, self, cmd.Path}, cmd.Args...))
	return nil
}

// enclose has cmd run this program with args instead of its own.
func enclose(cmd *exec.Cmd, args []string) {
	cmd.Path, cmd.Args = "/proc/self/exe", args
	dieWithParent(cmd)
	attr := cmd.SysProcAttr
	attr.Cloneflags |= unix.CLONE_NEWPID | unix.CLONE_NEWNET
	attr.Unshareflags |= unix.CLONE_NEWNS // which makes its mounts private as well
	if !privileged() {
		asRootOfUserNamespace(attr)
	}
}

func asRootOfUserNamespace(attr *syscall.SysProcAttr) {
	attr.Cloneflags |= unix.CLONE_NEWUSER
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
}

// StartUnshared starts cmd as Enclose describes, so that it dies with this
// process.
func StartUnshared(cmd *exec.Cmd) error {
	if err := Unshare(cmd); err != nil {
		return err
	}
	return startKept(cmd)
}

func startKept(cmd *exec.Cmd) error {
	t, err := keeper()
	if err != nil {
		return err
	}
	if err := t.run(cmd.Start); err != nil {
		return explain(fmt.Errorf("start in new namespaces: %w", err), thisMachine)
	}
	return nil
}

// keeper is a thread that lives as long as the process.
var keeper = sync.OnceValues(func() (*thread, error) {
	return newThread(func() error { return nil })
})

// privileged says that the process can make namespaces and configure networks as
// it is.
func privileged() bool {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return false
	}
	const need = 1<<unix.CAP_SYS_ADMIN | 1<<unix.CAP_NET_ADMIN
	return data[0].Effective&need == need
}

// The names under which this program is started to be something else.
const (
	initName  = "fabrictest-enclosure"
	probeName = "fabrictest-probe"

	probeNothing = "nothing" // is what this probe does
)

// A program that is started under one of these names is not itself. It is here,
// and not in main, because it must hold for every program that imports the
// package: one that forgot would start itself over and over again.
func init() {
	switch os.Args[0] {
	case initName:
		os.Exit(firstProcess(os.Args[1:]))
	case probeName:
		if len(os.Args) > 1 && os.Args[1] == probeNothing {
			os.Exit(0) // to be there was the trial
		}
		os.Exit(probeInside())
	}
}
