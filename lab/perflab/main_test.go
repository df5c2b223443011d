package perflab

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/fabrictest/fabrictest/internal/nstest"
	"github.com/fabrictest/fabrictest/perf"
)

// hostArg is the first argument of a test process that plays a host.
const hostArg = "perflab-host"

func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == hostArg {
		cpu, err := strconv.Atoi(os.Args[3])
		if err == nil {
			err = HostMain(context.Background(), os.Stdin, os.Stdout, SoftRoCE(netip.MustParseAddr(os.Args[2])), cpu)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "host:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	nstest.Main(m)
}

// newBench makes two hosts with a process each.
func newBench(tb testing.TB) *bench {
	tb.Helper()
	a, b := nstest.Pair(tb, 9000)
	var hosts [2]Host
	one, two := twoCPUs()
	for i, h := range []*nstest.Host{a, b} {
		hosts[i] = Host{
			Name: fmt.Sprintf("host%d", i), NetNS: h.FD(), Addr: h.V6, CPU: []int{one, two}[i],
			Start: func(cmd *exec.Cmd) error { return h.Do(cmd.Start) },
		}
	}
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	be, err := open(hosts, []string{self, hostArg}, os.Stderr)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := be.Close(); err != nil {
			tb.Error(err)
		}
	})
	return be
}

func TestScratchQuick(t *testing.T) {
	b := newBench(t)
	q, err := perf.RunQuick(t.Context(), b, perf.QuickOptions{Progress: func(s string, f float64) { fmt.Printf("\r%3.0f %% %-60s", 100*f, s) }})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println()
	q.WriteTable(os.Stdout)
}
