package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/conformance/interop"
	"github.com/fabrictest/fabrictest/control"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/lab/kernel"
)

func TestMain(m *testing.M) {
	testutil.SetParallel(8) // most parallel tests wait for a timeout
	os.Exit(m.Run())
}

func TestParseResources(t *testing.T) {
	got, err := parseResources("1: rxe0: pd 2 cq 3 qp 4 cm_id 0 mr 7 ctx 1 srq 2 \n")
	if err != nil || len(got) != 7 || got["mr"] != 7 || got["pd"] != 2 || got["cm_id"] != 0 {
		t.Errorf("%v, %v", got, err)
	}
	for _, line := range []string{"", "1: rxe0:", "1: rxe0: pd two"} {
		if got, err := parseResources(line); err == nil {
			t.Errorf("%q: %v", line, got)
		}
	}
}

// A failure is printed with its reason and the command that repeats it, and is in the file.
func TestReportShowsFailures(t *testing.T) {
	var out bytes.Buffer
	o := &Options{Out: &out, Command: func(exchange string) string { return "fabrictest interop verbs " + exchange }}
	r := newReport(&interop.Suite{Ours: &interop.End{Name: "softroce"}, Theirs: &interop.End{Name: "rxe"}}, o)
	one := interop.Case{Op: "write", By: interop.Theirs, Method: interop.ByModify, Family: interop.IPv6, Size: 0}
	two := one
	two.Size = 4097
	r.add(interop.Result{Case: one, Verdict: interop.Pass, Took: time.Second})
	r.add(interop.Result{Case: two, Verdict: interop.Fail, Why: "1 of 4097 octets"})
	r.endExchanges()
	for _, want := range []string{
		"write/theirs/hand/ipv6                1.0 s  0 ok, 4097 fail\n", "write/theirs/hand/ipv6/4097: 1 of 4097 octets\n",
		"again: fabrictest interop verbs write/theirs/hand/ipv6/4097\n",
		"2 exchanges in 0 s: 1 passed, 1 failed",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, &out)
		}
	}
	if r.ok() {
		t.Error("ok with a failure")
	}
	path := filepath.Join(t.TempDir(), "results.json")
	must.Do(t, r.write(path))
	text, err := os.ReadFile(path)
	var back report
	if err != nil || json.Unmarshal(text, &back) != nil || len(back.Exchanges) != 2 || back.Exchanges[1].Verdict != interop.Fail || back.Exchanges[1].Command == "" {
		t.Errorf("%v\n%s", err, text)
	}
	r.Counts = map[string]int{"pass": 1, "known": 1}
	if !r.ok() {
		t.Error("a known defect counts as a failure")
	}
	if r.Connections = (&interop.ConnectionsResult{Leaked: []string{"one"}}); r.ok() {
		t.Error("ok with a leak")
	}
}

// guestGIDs is the output of a guest for the GIDs of its device.
const guestGIDs = `/sys/class/infiniband/rxe0/ports/1/gids/0:fe80:0000:0000:0000:5054:00ff:fe77:0011
/sys/class/infiniband/rxe0/ports/1/gids/1:0000:0000:0000:0000:0000:ffff:0a4d:000b
/sys/class/infiniband/rxe0/ports/1/gids/2:fd77:0000:0000:0000:0000:0000:0000:0011
`

func TestFindGuestGID(t *testing.T) {
	for addr, want := range map[string]int{"10.77.0.11": 1, "fd77::11": 2, "fe80::5054:ff:fe77:11": 0} {
		if got, err := findGuestGID(guestGIDs, netip.MustParseAddr(addr)); err != nil || got != want {
			t.Errorf("index of %s = %d, %v; want %d", addr, got, err, want)
		}
	}
	if got, err := findGuestGID(guestGIDs, netip.MustParseAddr("10.77.0.12")); err == nil {
		t.Errorf("index of an address the guest does not have = %d", got)
	}
}

// shellServer executes commands as a guest does.
func shellServer(t *testing.T) Guest {
	t.Helper()
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { listener.Close() })
	// The programs of rdma-core may be installed on this machine; this guest has none of them.
	env := []string{"TMPDIR=" + t.TempDir(), "PATH=" + testutil.PathWith(t, "cat", "false", "grep", "sleep", "timeout")}
	s := &kernel.GuestServer{Start: func(cmd *exec.Cmd) (<-chan syscall.WaitStatus, error) {
		cmd.Env = env
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		return control.Wait(cmd), nil
	}}
	go func() { _ = s.Serve(listener) }() // ends with the test
	return Guest{Control: listener.Addr().(*net.TCPAddr).AddrPort()}
}

func TestGuestRunReturnsOutputAndExitCode(t *testing.T) {
	g := shellServer(t)
	for command, want := range map[string]struct {
		output string
		code   int
	}{
		"echo one; echo two >&2; exit 3": {"one\ntwo\n", 3},
		"printf open":                    {"open", 0},
		"cat":                            {"", 0}, // its stdin is not the script
		"false & wait $!":                {"", 1},
	} {
		output, code, err := g.Run(t.Context(), command)
		if err != nil || output != want.output || code != want.code {
			t.Errorf("%q: %q, %d, %v; want %q, %d", command, output, code, err, want.output, want.code)
		}
	}
	if _, code, err := g.Run(t.Context(), "kill -9 $$"); err != nil || code != 128+9 {
		t.Errorf("a killed shell: %d, %v", code, err)
	}
	absent := Guest{Control: netip.MustParseAddrPort("127.0.0.1:1")}
	if _, _, err := absent.Run(t.Context(), "true"); err == nil {
		t.Error("a command of an absent guest succeeded")
	}
}

func TestGuestRunEndsWithContext(t *testing.T) {
	t.Parallel()
	g := shellServer(t)
	ctx, cancel := context.WithTimeoutCause(t.Context(), 300*time.Millisecond, errTooLong)
	defer cancel()
	if _, _, err := g.Run(ctx, "sleep 100"); !errors.Is(err, errTooLong) {
		t.Errorf("got %v, want the end of the context", err)
	}
}
