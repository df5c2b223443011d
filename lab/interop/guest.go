package interop

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/fabrictest/fabrictest/conformance/interop"
	"github.com/fabrictest/fabrictest/lab/kernel"
	"github.com/fabrictest/fabrictest/verbs"
)

// Guest is a machine of a kernel lab: a kernel with a soft-RoCE device rxe0, or a
// soft-iWARP device siw0.
type Guest struct {
	// IPv4 and IPv6 are its addresses on the fabric.
	IPv4, IPv6 netip.Addr
	// Control is the address of its command server, on a separate link.
	Control netip.AddrPort
}

// Run runs a shell command in the guest and returns its standard output and error, and its exit
// code. It returns an error if the command did not run. When ctx ends the command is killed.
func (g Guest) Run(ctx context.Context, command string) (output string, code int, err error) {
	conn, err := g.dial(ctx)
	if err != nil {
		return "", 0, err
	}
	// The shell joins both outputs, to keep their order.
	output, code, err = kernel.Output(ctx, conn, kernel.Shell("exec 2>&1; "+command))
	return output, code, g.wrapError(err)
}

// dial connects to the command server.
func (g Guest) dial(ctx context.Context) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", g.Control.String())
	return conn, g.wrapError(err)
}

// wrapError adds the address of the guest to an error.
func (g Guest) wrapError(err error) error {
	if err != nil {
		err = fmt.Errorf("guest at %v: %w", g.Control, err)
	}
	return err
}

// SetDevice replaces the device of the guest by d, unless the guest has d already.
func (g Guest) SetDevice(ctx context.Context, d kernel.Device) error {
	has, _, err := g.Run(ctx, "cat "+kernel.DevicesFile)
	if err != nil || strings.TrimSpace(has) == string(d) {
		return err
	}
	conn, err := g.dial(ctx)
	if err != nil {
		return err
	}
	if err := kernel.SetDevices(ctx, conn, []kernel.Device{d}); err != nil {
		return g.wrapError(fmt.Errorf("the guest has no %s: %w", d, err))
	}
	return nil
}

// GIDIndex returns the index of addr in the guest device's GID table, for its programs' option -g.
func (g Guest) GIDIndex(ctx context.Context, addr netip.Addr) (int, error) {
	// A single grep for all entries: starting a process takes an emulated guest milliseconds, and
	// the table is long.
	out, _, err := g.Run(ctx, "grep -v 0000:0000:0000:0000:0000:0000:0000:0000 /sys/class/infiniband/rxe0/ports/1/gids/* 2>/dev/null")
	if err != nil {
		return 0, err
	}
	return findGuestGID(out, addr)
}

// findGuestGID looks addr up in lines of path/INDEX:GID.
func findGuestGID(lines string, addr netip.Addr) (int, error) {
	want := verbs.GIDFrom(addr)
	for line := range strings.Lines(lines) {
		path, gid, _ := strings.Cut(strings.TrimSpace(line), ":")
		index := path[strings.LastIndexByte(path, '/')+1:]
		parsed, err := netip.ParseAddr(gid)
		if err != nil || verbs.GIDFrom(parsed) != want {
			continue
		}
		if i, err := strconv.Atoi(index); err == nil {
			return i, nil
		}
	}
	return 0, fmt.Errorf("the guest's device has no GID for %v; it has:\n%s", addr, lines)
}

// parseResources reads a line like "0: rxe0: pd 1 cq 2 qp 1 cm_id 0 mr 0 ctx 1 srq 0".
func parseResources(line string) (map[string]int, error) {
	words := strings.Fields(line)
	all := make(map[string]int)
	for i := 2; i+1 < len(words); i += 2 {
		n, err := strconv.Atoi(words[i+1])
		if err != nil {
			return nil, fmt.Errorf("%q is not a number of resources, in %q", words[i+1], line)
		}
		all[words[i]] = n
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no numbers of resources in %q", line)
	}
	return all, nil
}

// kernelLacks returns the operations that kernel devices lack without saying so, with reasons.
func kernelLacks(t verbs.Transport) map[string]string {
	if t != verbs.TransportIWARP {
		return nil
	}
	const imm = "it has no immediate data (RFC 7306)"
	return map[string]string{"send-imm": imm, "write-imm": imm}
}

// kernelExceptions returns the failures that are known defects of the kernel or its library, for
// a device of the kind rxe or siw. lossy says that the link loses packets. A pattern names an
// operation and the end that requests it.
func kernelExceptions(kind string, lossy bool) []interop.Exception {
	if kind == string(kernel.RXE) {
		exceptions := []interop.Exception{
			{
				Pattern: "send-inv/ours", ErrorContains: interop.ErrNoInvalidateFlag.Error(),
				Reason: "rxe passes the kernel's IB_WC_WITH_INVALIDATE (4) to programs, for which 4 is IBV_WC_IP_CSUM_OK and 8 is IBV_WC_WITH_INV; the key is invalidated",
			},
			{
				Pattern: "atomic-write/theirs", ErrorContains: verbs.WCRemAccessErr.String(), Intermittent: true,
				Reason: "rxe retransmits a lost atomic write with remote address 0",
			},
		}
		if lossy {
			exceptions = append(exceptions, rxeLosses...)
		}
		return exceptions
	}
	return []interop.Exception{
		{
			Pattern: "send-inv/ours", ErrorContains: interop.ErrNoInvalidateFlag.Error(),
			Reason: "siw's library never tells a program that a message has invalidated a key; the key is invalidated",
		},
		{
			Pattern: "send-inv/theirs", ErrorContains: verbs.WCRemInvReqErr.String(),
			Reason: "siw's library sends wr.rdma.rkey, which is not set, in place of invalidate_rkey",
		},
	}
}

// rxeLosses are known failures of rxe after packet loss.
var rxeLosses = []interop.Exception{
	{
		Pattern: "uc-write-imm/ours", ErrorContains: interop.ErrNoCompletion.Error(), Intermittent: true,
		Reason: "once a write over UC has lost a packet, rxe takes no later one on that queue pair, though each begins anew",
	},
}
