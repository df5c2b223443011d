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

// unsharedEnv is set in the environment of processes started by StartUnshared.
const unsharedEnv = "FABRICTEST_ENCLOSURE"

// IsUnshared reports whether this process runs in namespaces made by StartUnshared.
func IsUnshared() bool { return os.Getenv(unsharedEnv) != "" }

// Unshare prepares cmd to start in new network, PID and mount namespaces, and in a new user
// namespace if this process is unprivileged. There cmd is root; its namespaces are removed when it
// ends. Use StartUnshared, unless the thread that starts cmd lives as long as this process.
//
// This program itself runs as the init process of the PID namespace. It reaps orphans, forwards
// SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 (the SIGINT of a terminal reaches cmd directly), and exits
// with cmd's exit code, or 128 plus the number of the signal that ended it. When init ends, the
// kernel kills all processes of the namespace; init is killed when this process dies.
func Unshare(cmd *exec.Cmd) error {
	if cmd.Err != nil {
		return cmd.Err
	}
	if cmd.Process != nil {
		return errors.New("unshare: the command was started already")
	}
	self, err := os.Readlink("/proc/self")
	if err != nil {
		return fmt.Errorf("unshare: is /proc mounted? %w", err)
	}
	setNamespaceFlags(cmd, append([]string{initName, self, cmd.Path}, cmd.Args...))
	return nil
}

// setNamespaceFlags makes cmd run this program with args in new PID, network and mount namespaces,
// and as root of a new user namespace if this process is unprivileged. The kernel kills cmd when
// the thread that starts it ends.
func setNamespaceFlags(cmd *exec.Cmd, args []string) {
	cmd.Path, cmd.Args = "/proc/self/exe", args
	dieWithParent(cmd)
	attr := cmd.SysProcAttr
	attr.Cloneflags |= unix.CLONE_NEWPID | unix.CLONE_NEWNET
	attr.Unshareflags |= unix.CLONE_NEWNS // also makes its mounts private
	if !privileged() {
		asRootOfUserNamespace(attr)
	}
}

// asRootOfUserNamespace makes a process start in a new user namespace, where it is root.
func asRootOfUserNamespace(attr *syscall.SysProcAttr) {
	attr.Cloneflags |= unix.CLONE_NEWUSER
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
}

// StartUnshared prepares cmd with Unshare and starts it. cmd is killed when this process dies.
func StartUnshared(cmd *exec.Cmd) error {
	if err := Unshare(cmd); err != nil {
		return err
	}
	return startOnPermanentThread(cmd)
}

// startOnPermanentThread starts cmd from a thread that lives as long as this process: the kernel
// sends cmd the parent death signal when the thread that started it ends.
func startOnPermanentThread(cmd *exec.Cmd) error {
	t, err := permanentThread()
	if err != nil {
		return err
	}
	if err := t.run(cmd.Start); err != nil {
		return explainNamespaceError(fmt.Errorf("start in new namespaces: %w", err), thisMachine)
	}
	return nil
}

// permanentThread lives as long as the process.
var permanentThread = sync.OnceValues(func() (*thread, error) {
	return newThread(func() error { return nil })
})

// privileged reports whether the process can create namespaces and configure networks.
func privileged() bool {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return false
	}
	const need = 1<<unix.CAP_SYS_ADMIN | 1<<unix.CAP_NET_ADMIN
	return data[0].Effective&need == need
}

// Values of os.Args[0] for which init runs another function instead of main.
const (
	initName  = "fabrictest-init"
	probeName = "fabrictest-probe"

	probeExit = "nothing" // exit at once
)

// init runs the init process or the probes if this program was started as one of them. This is not
// in main, because every program that imports the package starts itself in this way.
func init() {
	switch os.Args[0] {
	case initName:
		os.Exit(runInit(os.Args[1:]))
	case probeName:
		if len(os.Args) > 1 && os.Args[1] == probeExit {
			os.Exit(0) // starting was the test
		}
		os.Exit(runProbe())
	}
}
