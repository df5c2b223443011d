package netns_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/netns/topology"
)

// roleVariable makes the test binary run another role.
const roleVariable = "FABRICTEST_NETNS_ROLE"

var roles = map[string]func() int{}

// unavailable is the error of Available.
var unavailable error

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(roles[role]())
	}
	testutil.SetParallel(8) // fabrics are independent, and tests mostly wait
	ns, err := netns.New()
	if err == nil {
		ns.Close()
		os.Exit(m.Run())
	}
	// An unprivileged user runs the tests in new namespaces.
	if unavailable = netns.Available(); unavailable != nil || netns.IsUnshared() {
		fmt.Fprintln(os.Stderr, unavailable, err)
		os.Exit(m.Run())
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := netns.StartUnshared(cmd); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	switch {
	case err == nil:
		os.Exit(0)
	case errors.As(err, &exit):
		os.Exit(exit.ExitCode())
	default:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// needNamespaces skips with the reason if namespaces are unavailable.
func needNamespaces(tb testing.TB) {
	tb.Helper()
	if unavailable != nil {
		tb.Skip(unavailable)
	}
}

// build builds a fabric that is closed at the end of the test.
func build(tb testing.TB, t topology.Topology, opts netns.Options) *netns.Fabric {
	tb.Helper()
	needNamespaces(tb)
	f, err := netns.Build(t, opts)
	if errors.Is(err, unix.EROFS) {
		tb.Skip(err) // no routers in a container with a read-only /proc/sys
	}
	must.Do(tb, err)
	tb.Cleanup(func() { must.Do(tb, f.Close()) })
	return f
}

func pair(tb testing.TB, o topology.Options) topology.Topology {
	tb.Helper()
	return must.Get(topology.Pair(o))(tb)
}

func star(tb testing.TB, hosts int, o topology.Options) topology.Topology {
	tb.Helper()
	return must.Get(topology.Star(hosts, o))(tb)
}

func tree(tb testing.TB, leaves, spines, hosts int, o topology.Options) topology.Topology {
	tb.Helper()
	return must.Get(topology.FatTree(leaves, spines, hosts, o))(tb)
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(testTimeout); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not after %v: %s", testTimeout, what)
		}
	}
}
