package nstest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/netns"
)

// inNamespace marks a test process that Main has started.
const inNamespace = "FABRICTEST_NSTEST_NAMESPACE"

// Unavailable says why this process cannot make network namespaces; nil if it
// can.
var Unavailable = sync.OnceValue(func() error {
	ns, err := netns.New()
	if err != nil {
		return err
	}
	return ns.Close()
})

// Main is a TestMain for packages whose tests open sockets on loopback, or use Pair. It
// starts the test binary again in a network namespace of its own, and passes on its
// verdict: whatever has ports of the machine, as the kernel's soft-RoCE has 4791, is not in
// it. An ordinary user may make network namespaces only inside a user namespace, and gets
// one. Where there are no namespaces, tests run in the machine's network.
func Main(m *testing.M) {
	if os.Getenv(inNamespace) != "" {
		if err := loopbackUp(); err != nil {
			fmt.Fprintln(os.Stderr, "loopback of the tests' network:", err)
			os.Exit(1)
		}
		os.Exit(m.Run())
	}
	why := Unavailable()
	if why != nil && !errors.Is(why, unix.EPERM) {
		os.Exit(m.Run())
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), inNamespace+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if why != nil {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	runtime.LockOSThread() // Pdeathsig follows the thread that starts the child
	if err := cmd.Start(); err != nil {
		fmt.Fprintf(os.Stderr, "no namespace for tests (%v): those that need one will be skipped\n", err)
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

func loopbackUp() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(lo)
}
