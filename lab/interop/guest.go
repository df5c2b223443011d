package interop

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/fabrictest/fabrictest/lab/kernel/guest"
	"github.com/fabrictest/fabrictest/verbs"
)

// Guest is a machine of a kernel lab: a kernel with a soft-RoCE device rxe0, or a
// soft-iWARP device siw0.
type Guest struct {
	// IPv4 and IPv6 are its addresses on the fabric.
	IPv4, IPv6 netip.Addr
	// Control is where it runs programs for us, on a link of its own.
	Control netip.AddrPort
}

// Run runs a shell command in the guest and returns what it printed, on both
// its outputs, and its exit code. An error means that the guest did not obey;
// a command that fails is none. When ctx ends the command is killed.
func (g Guest) Run(ctx context.Context, command string) (output string, code int, err error) {
	conn, err := g.dial(ctx)
	if err != nil {
		return "", 0, err
	}
	// Both outputs are one, so that they are in order.
	output, code, err = guest.Output(ctx, conn, guest.Shell("exec 2>&1; "+command))
	return output, code, g.explain(err)
}

func (g Guest) dial(ctx context.Context) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", g.Control.String())
	return conn, g.explain(err)
}

func (g Guest) explain(err error) error {
	if err != nil {
		err = fmt.Errorf("guest at %v: %w", g.Control, err)
	}
	return err
}

// Use gives the guest the device d, in place of what it has.
func (g Guest) Use(ctx context.Context, d guest.Device) error {
	has, _, err := g.Run(ctx, "cat "+guest.DevicesFile)
	if err != nil || strings.TrimSpace(has) == string(d) {
		return err
	}
	conn, err := g.dial(ctx)
	if err != nil {
		return err
	}
	if err := guest.SetDevices(ctx, conn, []guest.Device{d}); err != nil {
		return g.explain(fmt.Errorf("the guest has no %s: %w", d, err))
	}
	return nil
}

// GIDIndex returns the index in the table of the guest's device of the GID that
// stands for addr: what its programs take as -g.
func (g Guest) GIDIndex(ctx context.Context, addr netip.Addr) (int, error) {
	// One grep, since every process costs an emulated guest milliseconds, and the
	// table is long and mostly empty.
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
