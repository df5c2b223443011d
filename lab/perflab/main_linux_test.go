package perflab

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
)

func TestMain(m *testing.M) {
	for _, process := range []struct {
		args []string
		main func() error
	}{{LabArgs, LabMain}, {HostArgs, HostMain}, {ScaleArgs, ScaleMain}} {
		if slices.Equal(os.Args[1:], process.args) {
			if err := process.main(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			os.Exit(0)
		}
	}
	testutil.NamespaceMain(m)
}

// newTestbed returns a testbed of two hosts with a process each.
func newTestbed(tb testing.TB) *testbed {
	tb.Helper()
	a, b := testutil.HostPair(tb, 9000)
	var hosts [2]Host
	one, two := twoCPUs()
	for i, h := range []*testutil.Host{a, b} {
		hosts[i] = Host{
			Name: fmt.Sprintf("host%d", i), NetNS: h.FD(), Addr: h.V6, CPU: []int{one, two}[i],
			Start: func(cmd *exec.Cmd) error {
				cmd.SysProcAttr.Pdeathsig = 0 // the thread of Do ends
				return h.Do(cmd.Start)
			},
		}
	}
	self := must.Get(os.Executable())(tb)
	pair := must.Get(startProcesses(hosts, append([]string{self}, HostArgs...), os.Stderr))(tb)
	tb.Cleanup(func() { must.Do(tb, pair.stop()) })
	return &testbed{hosts, pair}
}
