package kernel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/fabrictest/fabrictest/verbs"
)

// GuestShellPort is where a guest of the lab serves a shell.
const GuestShellPort = 2323

// Guest is a machine of the lab: a kernel with a soft-RoCE device rxe0, or a
// soft-iWARP device siw0.
type Guest struct {
	// IPv4 and IPv6 are its addresses on the fabric.
	IPv4, IPv6 netip.Addr
	// Shell is where it runs a shell for each TCP connection.
	Shell netip.AddrPort
}

// Run runs a shell command in the guest and returns what it printed, on both
// its outputs, and its exit code. An error means that the guest did not obey;
// a command that fails is none. When ctx ends the connection is dropped, but
// the command is not ended: guard it with timeout(1).
func (g Guest) Run(ctx context.Context, command string) (output string, code int, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("guest at %v: %w", g.Shell, err)
		}
	}()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", g.Shell.String())
	if err != nil {
		return "", 0, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if _, err := fmt.Fprintf(conn, "(%s\n) 2>&1 </dev/null; echo \"lab-exit $?\"; exit\n", command); err != nil {
		return "", 0, err
	}
	all, err := io.ReadAll(conn)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return string(all), 0, err
	}
	return splitExit(string(all))
}

// splitExit takes the exit code off the end of what a guest's shell printed.
func splitExit(all string) (output string, code int, err error) {
	output, tail, found := cutLast(all, "lab-exit ")
	if found {
		code, err = strconv.Atoi(strings.TrimSpace(tail))
	}
	if !found || err != nil {
		return all, 0, errors.New("the shell ended without saying how the command did")
	}
	return output, code, nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// Use gives the guest the device d, in place of what it has.
func (g Guest) Use(ctx context.Context, d Device) error {
	out, code, err := g.Run(ctx, fmt.Sprintf(`[ "$(cat /run/devices 2>/dev/null)" = %s ] || guest-device %[1]s`, d))
	if err == nil && code != 0 {
		err = fmt.Errorf("the guest has no %s: %s", d, strings.TrimSpace(out))
	}
	return err
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
		_, index, _ := cutLast(path, "/")
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
