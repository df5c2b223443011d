package kernel

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

func testMatrix() *Matrix {
	return &Matrix{
		Guest: Guest{IPv4: netip.MustParseAddr("10.77.0.11"), IPv6: netip.MustParseAddr("fd77::11")},
		IPv4:  netip.MustParseAddr("10.77.0.1"), IPv6: netip.MustParseAddr("fd77::1"),
		Iters: 50, Timeout: 20 * time.Second,
		gids: map[Family]int{IPv4: 1, IPv6: 2},
	}
}

func TestGuestCommands(t *testing.T) {
	m := testMatrix()
	ready := make(chan struct{})
	for _, test := range []struct {
		c    Case
		want string
	}{
		{
			Case{RC, Client, IPv6, poll, 1},
			"timeout -s KILL 21 ibv_rc_pingpong -d rxe0 -g 2 -p 18600 -s 1 -n 50 -m 1024",
		},
		{
			Case{UD, Server, IPv4, events, 1024},
			"timeout -s KILL 21 ibv_ud_pingpong -d rxe0 -g 1 -p 18600 -s 1024 -n 50 -e -c 10.77.0.1",
		},
		{
			Case{SRQ, Server, IPv6, manyQPs, 3000},
			"timeout -s KILL 21 ibv_srq_pingpong -d rxe0 -g 2 -p 18600 -s 3000 -n 50 -m 1024 -q 16 -c 10.77.0.1",
		},
	} {
		if got := m.pingPongCommand(test.c, m.pingPong(test.c, 18600, ready)); got != test.want {
			t.Errorf("%s:\n got %s\nwant %s", test.c.Name(), got, test.want)
		}
	}
	c := Case{RPing, Server, IPv6, events, 64}
	want := "cd ${TMPDIR:-/tmp}; timeout -s KILL 21 rping -c -a fd77::1 -p 7174 -S 64 -C 5 -v -V 2>said; code=$?; cat said; exit $code"
	if got := m.pingCommand(c, m.ping(c, 7174, ready)); got != want {
		t.Errorf("%s:\n got %s\nwant %s", c.Name(), got, want)
	}
}

func TestJudge(t *testing.T) {
	const content = "  local address:  LID 0x0000, QPN 0x000014\n102400 bytes in 0.11 seconds = 7.29 Mbit/sec\n50 iters in 0.11 seconds = 2248.74 usec/iter\n"
	pong := Case{RC, Client, IPv4, poll, 1024}
	ping := Case{RPing, Client, IPv4, poll, 64}
	pinged := func(prefix string, pings int) string {
		var out strings.Builder
		text := make([]byte, 64)
		for n := range pings {
			PingText(text, n)
			fmt.Fprintf(&out, "%sping data: %s\n", prefix, text[:63])
		}
		return out.String()
	}
	persistentServer := Case{RPing, Client, IPv4, persistent, 64}
	persistentClient := Case{RPing, Server, IPv4, persistent, 64}
	for _, test := range []struct {
		what   string
		c      Case
		output string
		code   int
		ok     bool
	}{
		{"content", pong, content, 0, true},
		{"exit code", pong, content, 1, false},
		{"wrong data, exit code 0", pong, content + "invalid data in page 0\n", 0, false},
		{"too few", pong, strings.ReplaceAll(content, "50 iters", "49 iters"), 0, false},
		{"silent", pong, "", 0, false},
		{"ping", ping, pinged("server ", 50), 0, true},
		{"ping missing", ping, pinged("server ", 49), 0, false},
		{"ping altered", ping, strings.Replace(pinged("server ", 50), "ABC", "ABD", 1), 0, false},
		{"ping mismatch", ping, pinged("", 50) + "data mismatch!\n", 0, false},
		{"both left", persistentServer, strings.Repeat(clientLeft+"...\nwait for RDMA_READ_ADV state 10\n", 2), 0, true},
		{"one left", persistentServer, clientLeft, 0, false},
		{"two clients", persistentClient, pinged("", 50) + pinged("", 50), 0, true},
		{"one client", persistentClient, pinged("", 50), 0, false},
	} {
		if err := judge(test.c, 50, test.output, test.code); (err == nil) != test.ok {
			t.Errorf("%s: %v", test.what, err)
		}
	}
}

// A matrix whose device cannot be opened says so; one whose guest fails a case
// counts it, tells the story, and goes on.
func TestMatrixRun(t *testing.T) {
	m := testMatrix()
	m.Guest = shellServer(t)
	m.Guest.IPv4, m.Guest.IPv6 = netip.MustParseAddr("127.0.0.1"), there6
	m.IPv4, m.IPv6, m.Timeout = netip.MustParseAddr("127.0.0.1"), here6, 2*time.Second
	m.gids = nil
	m.Open = func(netip.Addr) (verbs.Context, error) { return nil, errors.New("no device") }
	if _, err := m.Run(t.Context(), Cases()[:1]); err == nil || !strings.Contains(err.Error(), "has no GID") {
		t.Errorf("a guest without rxe0: %v", err)
	}

	var out bytes.Buffer
	table := &Table{W: &out}
	m.devices = map[Family]verbs.Context{IPv4: newFabric().device(netip.MustParseAddr("127.0.0.1"))}
	// Neither program is there: both ends of both cases fail.
	for _, c := range []Case{{RC, Client, IPv4, poll, 64}, {RPing, Client, IPv4, poll, 64}} {
		table.Add(m.runCase(t.Context(), c))
	}
	table.Add(Outcome{Case: Case{RC, Client, IPv6, poll, 64}})
	table.Close()
	for _, want := range []string{
		"rc/client/ipv4/poll", "FAIL rc/client/ipv4/poll/64: our client: side channel 127.0.0.1:", "the guest's ibv_rc_pingpong exits with 127",
		"connecting to 127.0.0.1:", "64 ok", "1 passed, 2 failed",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, out.String())
		}
	}
}
