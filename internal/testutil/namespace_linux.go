package testutil

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/netns"
)

// inNamespace is an environment variable of test processes that NamespaceMain started.
const inNamespace = "FABRICTEST_TEST_NAMESPACE"

// NamespacesUnavailable returns why this process cannot create network namespaces, or nil.
var NamespacesUnavailable = sync.OnceValue(func() error {
	ns, err := netns.New()
	if err != nil {
		return err
	}
	return ns.Close()
})

// NamespaceMain is a TestMain for packages whose tests create network namespaces (HostPair) or bind
// ports on loopback. It runs the test binary again in a new network namespace, where nothing else,
// such as the rxe driver on port 4791, uses ports. Without root it also creates a user namespace;
// if namespaces are not available, tests run in the host network.
func NamespaceMain(m *testing.M) {
	debug.SetGCPercent(400) // most of these packages create hundreds of small worlds, which become garbage
	if os.Getenv(inNamespace) != "" {
		if err := loopbackUp(); err != nil {
			fmt.Fprintln(os.Stderr, "set up loopback:", err)
			os.Exit(1)
		}
		os.Exit(m.Run())
	}
	unavailable := NamespacesUnavailable()
	needsUserNamespace := errors.Is(unavailable, unix.EPERM)
	if unavailable != nil && !needsUserNamespace {
		os.Exit(m.Run())
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), inNamespace+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if needsUserNamespace {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	runtime.LockOSThread() // Pdeathsig applies when the starting thread exits
	if err := cmd.Start(); err != nil {
		fmt.Fprintf(os.Stderr, "cannot run tests in a namespace (%v): tests that need one will be skipped\n", err)
		os.Exit(m.Run())
	}
	err := cmd.Wait()
	var exit *exec.ExitError
	switch {
	case err == nil:
		os.Exit(0)
	case errors.As(err, &exit) && exit.Exited():
		os.Exit(exit.ExitCode())
	default:
		fmt.Fprintln(os.Stderr, "tests in a namespace:", err)
		os.Exit(1)
	}
}

// loopbackUp sets the loopback interface up, which is down in a new network namespace.
func loopbackUp() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(lo)
}
