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

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/netns"
)

// inUserNS marks a test process that already runs in a user namespace.
const inUserNS = "FABRICTEST_NSTEST_USERNS"

// Unavailable says why this process cannot make network namespaces; nil if it
// can.
var Unavailable = sync.OnceValue(func() error {
	ns, err := netns.New()
	if err != nil {
		return err
	}
	return ns.Close()
})

// Main is a TestMain for packages that use Pair. An ordinary user may make
// network namespaces only inside a user namespace, and a process of many
// threads cannot enter one: so Main starts the test binary again, in a user
// namespace of its own but in the same network, and passes on its verdict.
func Main(m *testing.M) {
	why := Unavailable()
	if why == nil || !errors.Is(why, unix.EPERM) || os.Getenv(inUserNS) != "" {
		os.Exit(m.Run())
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), inUserNS+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	runtime.LockOSThread() // Pdeathsig follows the thread that starts the child
	if err := cmd.Start(); err != nil {
		fmt.Fprintf(os.Stderr, "no user namespace (%v): tests that need network namespaces will be skipped\n", err)
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
		fmt.Fprintln(os.Stderr, "tests in a user namespace:", err)
		os.Exit(1)
	}
}
