package interop

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/lab/kernel"
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
			Case{conformance.RoCE, RC, Client, IPv6, poll, 1},
			"timeout -s KILL 21 ibv_rc_pingpong -d rxe0 -g 2 -p 18600 -s 1 -n 50 -m 1024",
		},
		{
			Case{conformance.RoCE, UD, Server, IPv4, events, 1024},
			"timeout -s KILL 21 ibv_ud_pingpong -d rxe0 -g 1 -p 18600 -s 1024 -n 50 -e -c 10.77.0.1",
		},
		{
			Case{conformance.RoCE, SRQ, Server, IPv6, manyQPs, 3000},
			"timeout -s KILL 21 ibv_srq_pingpong -d rxe0 -g 2 -p 18600 -s 3000 -n 50 -m 1024 -q 16 -c 10.77.0.1",
		},
		{Case{conformance.IWARP, UCMatose, Client, IPv6, many, 97}, "timeout -s KILL 21 ucmatose -b fd77::11 -p 18600 -c 4 -C 5 -S 97"},
		{Case{conformance.IWARP, RDMA, Server, IPv4, withCRC, 16}, "timeout -s KILL 21 rdma_client -s 10.77.0.1 -p 18600"},
		{
			Case{conformance.RoCE, RPing, Server, IPv6, events, 64},
			"cd ${TMPDIR:-/tmp}; timeout -s KILL 21 rping -c -a fd77::1 -p 18600 -S 64 -C 5 -v -V 2>said; code=$?; cat said; exit $code",
		},
	} {
		if _, got := m.programs(test.c, 18600, ready); got != test.want {
			t.Errorf("%s:\n got %s\nwant %s", test.c.Name(), got, test.want)
		}
	}
	// The output file of an earlier server is truncated before this one starts: the script could
	// read it first and end this server at once.
	c := Case{conformance.IWARP, RPing, Client, IPv4, persistent, 64}
	_, got := m.programs(c, 7174, ready)
	if truncated, started := strings.Index(got, ": >said; "), strings.Index(got, " & while "); truncated < 0 || started < truncated {
		t.Errorf("%s: %s", c.Name(), got)
	}
}

func TestJudgeChecksProgramOutput(t *testing.T) {
	const output = "  local address:  LID 0x0000, QPN 0x000014\n102400 bytes in 0.11 seconds = 7.29 Mbit/sec\n50 iters in 0.11 seconds = 2248.74 usec/iter\n"
	pingPong := Case{conformance.RoCE, RC, Client, IPv4, poll, 1024}
	ping := Case{conformance.RoCE, RPing, Client, IPv4, poll, 64}
	pinged := func(prefix string, pings int) string {
		var out strings.Builder
		text := make([]byte, 64)
		for n := range pings {
			RPingText(text, n)
			fmt.Fprintf(&out, "%sping data: %s\n", prefix, text[:63])
		}
		return out.String()
	}
	persistentServer := Case{conformance.RoCE, RPing, Client, IPv4, persistent, 64}
	persistentClient := Case{conformance.RoCE, RPing, Server, IPv4, persistent, 64}
	for _, test := range []struct {
		what   string
		c      Case
		output string
		code   int
		ok     bool
	}{
		{"correct output", pingPong, output, 0, true},
		{"exit code", pingPong, output, 1, false},
		{"wrong data, exit code 0", pingPong, output + "invalid data in page 0\n", 0, false},
		{"too few iterations", pingPong, strings.ReplaceAll(output, "50 iters", "49 iters"), 0, false},
		{"no output", pingPong, "", 0, false},
		{"ping", ping, pinged("server ", 50), 0, true},
		{"ping missing", ping, pinged("server ", 49), 0, false},
		{"ping altered", ping, strings.Replace(pinged("server ", 50), "ABC", "ABD", 1), 0, false},
		{"ping mismatch", ping, pinged("", 50) + "data mismatch!\n", 0, false},
		{"both left", persistentServer, strings.Repeat(clientLeft+"...\nwait for RDMA_READ_ADV state 10\n", 2), 0, true},
		{"one left", persistentServer, clientLeft, 0, false},
		{"two clients", persistentClient, pinged("", 50) + pinged("", 50), 0, true},
		{"one client", persistentClient, pinged("", 50), 0, false},
	} {
		if err := checkOutput(test.c, 50, test.output, test.code); (err == nil) != test.ok {
			t.Errorf("%s: %v", test.what, err)
		}
	}
}

// Run reports a device that cannot be opened. A case that the guest fails is
// counted and printed, and the next case runs.
func TestMatrixRun(t *testing.T) {
	t.Parallel()
	m := testMatrix()
	m.Guest = shellServer(t)
	m.Guest.IPv4, m.Guest.IPv6 = netip.MustParseAddr("127.0.0.1"), there6
	m.IPv4, m.IPv6, m.Timeout = netip.MustParseAddr("127.0.0.1"), here6, 2*time.Second
	m.gids = nil
	m.Open = func(Setup) (verbs.Context, error) { return nil, errors.New("no device") }
	if _, err := m.Run(t.Context(), Cases(conformance.IWARP)[:1]); err == nil || !strings.Contains(err.Error(), "the guest has no siw") {
		t.Errorf("a guest without siw: %v", err)
	}
	m.theirs = kernel.RXE
	if _, err := m.Run(t.Context(), Cases(conformance.RoCE)[:1]); err == nil || !strings.Contains(err.Error(), "has no GID") {
		t.Errorf("a guest without rxe0: %v", err)
	}

	var out bytes.Buffer
	table := &Table{W: &out}
	m.devices = map[Setup]verbs.Context{{Local: m.IPv4}: newFabric().device(m.IPv4)}
	// Neither program is installed: both ends of both cases fail.
	for _, c := range []Case{{conformance.RoCE, RC, Client, IPv4, poll, 64}, {conformance.RoCE, RPing, Client, IPv4, poll, 64}} {
		table.Add(m.runCase(t.Context(), c))
	}
	table.Add(Outcome{Case: Case{conformance.RoCE, RC, Client, IPv6, poll, 64}, Faults: Faults{Stalls: 2}})
	table.Add(Outcome{Case: Case{conformance.RoCE, RC, Client, IPv6, poll, 65}, Faults: Faults{Side: Side{FPDUs: 9, DirtyPads: 1}}})
	table.Close()
	for _, want := range []string{
		"rc/client/ipv4/poll", "FAIL rc/client/ipv4/poll/64: our client: side channel 127.0.0.1:", "the guest's ibv_rc_pingpong exits with 127",
		"connecting to 127.0.0.1:", "64 ok", "2 passed, 2 failed",
		"the guest: first frame left lying 2 times, pad not zero in 1 of 9 frames\n", "put up with: first frame",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, out.String())
		}
	}
}

// A fault of our device on the wire fails a case; faults of the guest's device
// are only counted.
func TestJudgeWireFailsOnOurFaults(t *testing.T) {
	plain, crc := Case{conformance.IWARP, RPing, Client, IPv4, poll, 64}, Case{conformance.IWARP, RPing, Client, IPv4, withCRC, 64}
	two := Case{conformance.IWARP, RPing, Client, IPv4, persistent, 64}
	theirs := Side{FPDUs: 9, DirtyPads: 3, BadCRCs: 1, Terminates: 2, Mangled: 2}
	for _, test := range []struct {
		what string
		c    Case
		r    TapReport
		want string // text of the error; empty if none
	}{
		{"no faults of ours", plain, TapReport{Connections: 1, Theirs: theirs}, ""},
		{"with a CRC", crc, TapReport{Connections: 1, WithCRC: 1}, ""},
		{"no CRC", crc, TapReport{Connections: 1}, "a CRC was agreed on in 0 of 1 connections, want 1"},
		{"a CRC", plain, TapReport{Connections: 1, WithCRC: 1}, "want 0"},
		{"one connection", two, TapReport{Connections: 1}, "1 connections were agreed on, want 2"},
		{"bad CRC", crc, TapReport{Connections: 1, WithCRC: 1, Ours: Side{FPDUs: 2, BadCRCs: 1}}, "the CRC of 1 of our 2 frames"},
		{"dirty pad", plain, TapReport{Connections: 1, Ours: Side{FPDUs: 2, DirtyPads: 1}}, "the pad of 1 of our 2 frames"},
		{"Terminate", plain, TapReport{Connections: 1, Ours: Side{FPDUs: 2, Terminates: 1}}, "we sent 1 Terminates"},
		{"unread connection", two, TapReport{Unread: 1}, ""},
		{"unread, with a fault", two, TapReport{Unread: 1, Ours: Side{DirtyPads: 1}}, "the pad of 1"},
	} {
		err := checkWire(test.c, test.r)
		if (err != nil) != (test.want != "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", test.what, err, test.want)
		}
	}
	const want = "pad not zero in 3 of 9 frames, CRC wrong in 1 of 9 frames, 2 of 2 Terminates mangled, 1 connections not watched to the end"
	if got := (Faults{Side: theirs, Unread: 1}).String(); got != want {
		t.Errorf("faults %q, want %q", got, want)
	}
}

// The cases are listed here, so that the test does not depend on how Cases builds them.
func TestCasesAreComplete(t *testing.T) {
	for _, test := range []struct {
		protocol             conformance.Protocol
		tool, variants, size string
	}{
		{conformance.RoCE, "rc", "poll events", "1 64 1024 1025 3000 65536"},
		{conformance.RoCE, "uc", "poll events", "1 64 1024 1025 3000 65536"},
		{conformance.RoCE, "ud", "poll events", "1 64 1024"},
		{conformance.RoCE, "srq", "poll events qps", "1 64 1024 1025 3000 65536"},
		{conformance.RoCE, "rping", "poll events persistent", "23 64 1024 1025 3000 65535"},
		{conformance.RoCE, "udaddy", "poll events", "41 100 1024"},
		{conformance.RoCE, "ucmatose", "poll events many", "16 100 1024 1025 65536"},
		{conformance.RoCE, "rdma", "poll events", "16"},
		{conformance.IWARP, "rping", "poll events persistent crc", "23 64 1025 1404 1405 1428 1429 3002 65535"},
		{conformance.IWARP, "ucmatose", "poll events many crc", "16 97 1400 1401 1424 1425 3003 65536"},
		{conformance.IWARP, "rdma", "poll events crc", "16"},
	} {
		names := make(map[string]bool)
		for _, c := range Cases(test.protocol) {
			if names[c.Name()] {
				t.Errorf("%s is listed twice", c.Name())
			}
			names[c.Name()] = true
			if c.Protocol != test.protocol {
				t.Errorf("%s has protocol %s", c.Name(), c.Protocol)
			}
		}
		for _, role := range []string{"client", "server"} {
			for _, family := range []string{"ipv4", "ipv6"} {
				for _, variant := range strings.Fields(test.variants) {
					for _, size := range strings.Fields(test.size) {
						if name := strings.Join([]string{test.tool, role, family, variant, size}, "/"); !names[name] {
							t.Errorf("%s: %s is missing", test.protocol, name)
						}
					}
				}
			}
		}
	}
}

// setup and device return the devices that a case needs.
func TestCasesSelectTheirDevices(t *testing.T) {
	for _, c := range append(Cases(conformance.RoCE), Cases(conformance.IWARP)...) {
		setup, crc := c.setup(here4), c.Variant == "crc"
		var device kernel.Device
		switch {
		case c.Protocol == conformance.RoCE:
			device = kernel.RXE
		case crc:
			device = kernel.SIWCRC
		default:
			device = kernel.SIW
		}
		first := c.Protocol == conformance.IWARP && c.Tool == UCMatose && c.Role == Server
		if want := (Setup{here4, crc, first}); setup != want || c.device() != device {
			t.Errorf("%s %s: %+v against %s", c.Protocol, c.Name(), setup, c.device())
		}
	}
}

func TestMatchingSelectsCasesByPattern(t *testing.T) {
	for pattern, want := range map[string]int{
		"rc": 48, "rc/client": 24, "ud/*/ipv6": 12, "*/server/ipv4/events/64": 5, "ucmatose": 60, "rping/client/ipv6/persistent/65535": 1, "*": len(Cases(conformance.RoCE)),
	} {
		if got, err := Matching(Cases(conformance.RoCE), pattern); err != nil || len(got) != want {
			t.Errorf("%q matches %d cases, %v; want %d", pattern, len(got), err, want)
		}
	}
	for _, pattern := range []string{"xrc", "rc/[", ""} {
		if got, err := Matching(Cases(conformance.RoCE), pattern); err == nil {
			t.Errorf("%q matches %d cases without an error", pattern, len(got))
		}
	}
}
