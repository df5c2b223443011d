package kernel

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/fabrictest/fabrictest/control"
)

// ErrConnectionClosed is returned if the guest closes the connection, as it does when it ends.
var ErrConnectionClosed = errors.New("the guest closed the connection")

// Command is a program to run in a guest.
type Command struct {
	Args []string // found by the guest's PATH
	// Stdin is the input of the program; nil is empty.
	Stdin io.Reader
	// Stdout and Stderr receive its output; nil discards it. They are not written
	// concurrently, and may be the same.
	Stdout, Stderr io.Writer
	// Signals are sent to the process group of the program.
	Signals <-chan os.Signal
}

// Shell returns a command for the guest's shell.
func Shell(line string) Command { return Command{Args: []string{"sh", "-c", line}} }

// Exec runs a program in the guest that conn is connected to, and closes conn. It returns the
// exit code, or 128 plus the number of the signal that ended the program. The process group of
// the program is killed when ctx or the connection ends.
func Exec(ctx context.Context, conn net.Conn, c Command) (code int, err error) {
	r := guestRequest{Op: opExec, Args: c.Args}
	err = sendRequest(ctx, conn, r, func(frames *control.Conn) (err error) {
		go func() { // may continue after Exec, until Stdin ends
			if c.Stdin != nil {
				_, _ = frames.CopyFrom(control.Stdin, c.Stdin)
			}
			_ = frames.Write(control.Frame{Kind: control.Stdin}) // end of file; awaitExit returns the error of the connection
		}()
		code, err = awaitExit(frames, control.ProgramClient{Stdout: c.Stdout, Stderr: c.Stderr, Signals: c.Signals})
		return err
	})
	return code, err
}

// Output runs a program as Exec does, and returns its standard output and error, interleaved.
func Output(ctx context.Context, conn net.Conn, c Command) (output string, code int, err error) {
	var b bytes.Buffer
	c.Stdout, c.Stderr = &b, &b
	code, err = Exec(ctx, conn, c)
	return b.String(), code, err
}

// File is a file to write in a guest.
type File struct {
	Path    string // in the guest, absolute
	Mode    fs.FileMode
	Size    int64
	Content io.Reader // of Size bytes
}

// Put writes a file in the guest that conn is connected to, and closes conn. The file appears under
// its path when it is complete.
func Put(ctx context.Context, conn net.Conn, f File) error {
	r := guestRequest{Op: opPut, Path: f.Path, Mode: uint32(f.Mode.Perm()), Size: f.Size}
	return sendRequest(ctx, conn, r, func(frames *control.Conn) error {
		// The guest may fail at once and stop reading: its error is preferred to CopyFrom's.
		result := make(chan error, 1)
		go func() {
			_, err := awaitExit(frames, control.ProgramClient{})
			result <- err
		}()
		sent, err := frames.CopyFrom(control.Stdin, io.LimitReader(f.Content, f.Size))
		if err == nil && sent < f.Size {
			return fmt.Errorf("put %s: the source ended after %d of %d bytes", f.Path, sent, f.Size)
		}
		return cmp.Or(<-result, err)
	})
}

// SetDevices replaces the RDMA devices of the guest that conn is connected to, and closes conn.
func SetDevices(ctx context.Context, conn net.Conn, devices []Device) error {
	return sendRequest(ctx, conn, guestRequest{Op: opDevices, Devices: devices}, func(frames *control.Conn) error {
		_, err := awaitExit(frames, control.ProgramClient{})
		return err
	})
}

// awaitExit writes the program's output to p and sends p's signals to the guest, until the guest
// sends the exit code or the error with which the request failed. It returns that code or error,
// and ErrConnectionClosed if the connection breaks.
func awaitExit(c *control.Conn, p control.ProgramClient) (code int, err error) {
	code, err = c.AwaitExit(&p)
	var failed *control.CloseError
	var output *control.OutputError
	switch {
	case err == nil, errors.As(err, &failed), errors.As(err, &output), errors.Is(err, control.ErrProtocol):
		return code, err
	}
	return 0, fmt.Errorf("%w: %w", ErrConnectionClosed, err)
}

// GuestPort is the TCP port of a guest's server, on its control link.
const GuestPort = 2323

// guestOp is the kind of a request.
type guestOp string

const (
	opExec    guestOp = "exec"
	opPut     guestOp = "put"
	opDevices guestOp = "devices"
)

// guestRequest is the hello of a client. The guest answers with an Exit frame, or with a Close frame
// if the request failed. Stdin frames carry a program's input or a file's content.
type guestRequest struct {
	Op guestOp `json:"op"`
	// For opExec:
	Args []string `json:"args,omitempty"`
	// For opPut:
	Path string `json:"path,omitempty"`
	Mode uint32 `json:"mode,omitempty"`
	Size int64  `json:"size,omitempty"`
	// For opDevices:
	Devices []Device `json:"devices,omitempty"`
}

const (
	guestVersion    = 1
	maxGuestRequest = 256 << 10
)

// guestProtocol has the parameters of the hello that a client sends and a guest reads.
var guestProtocol = control.Protocol{Version: guestVersion, Us: "the guest", Them: "the client", MaxHello: maxGuestRequest}

// sendRequest sends a request to the guest, calls exchange for the frames that follow, and closes
// conn. When ctx ends, it closes conn early and returns the cause.
func sendRequest(ctx context.Context, conn net.Conn, r guestRequest, exchange func(frames *control.Conn) error) error {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if len(b) > maxGuestRequest {
		return fmt.Errorf("the request has %d bytes, more than the limit of %d", len(b), maxGuestRequest)
	}
	frames := control.New(conn, control.Config{Limits: control.ProgramClientLimits})
	if err = frames.SendHello(guestProtocol, json.RawMessage(b)); err == nil {
		err = exchange(frames)
	}
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// InitPath is the path of the init program, which the kernel gets by rdinit=.
const InitPath = "/fabrictest-kernel-guest"

// BootOptions are passed to a guest on the kernel command line.
type BootOptions struct {
	ID      int // from 1
	MTU     int // of the wire
	Devices []Device
}

// CommandLine returns the options as kernel parameters.
func (o BootOptions) CommandLine() string {
	return fmt.Sprintf("rdinit=%s fabrictest.id=%d fabrictest.mtu=%d fabrictest.devices=%s", InitPath, o.ID, o.MTU, formatDevices(o.Devices))
}

// parseCommandLine parses the options in the kernel command line. The ID and the MTU are required.
func parseCommandLine(line string) (o BootOptions, err error) {
	for word := range strings.FieldsSeq(line) {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "fabrictest.id":
			o.ID, err = strconv.Atoi(value)
		case "fabrictest.mtu":
			o.MTU, err = strconv.Atoi(value)
		case "fabrictest.devices":
			o.Devices, err = ParseDevices(value)
		}
		if err != nil {
			return o, fmt.Errorf("%s: %w", word, err)
		}
	}
	if o.ID < 1 || o.ID > MaxGuests || o.MTU == 0 {
		return o, fmt.Errorf("the kernel command line has no valid fabrictest.id and fabrictest.mtu: %s", line)
	}
	return o, nil
}

// MaxGuests is the maximum number of guests on one wire.
const MaxGuests = 9

// WireHost4 and WireHost6 are the lab's addresses on the wire.
var (
	WireHost4 = netip.MustParsePrefix("10.77.0.1/24")
	WireHost6 = netip.MustParsePrefix("fd77::1/64")
)

// Wire4 returns a guest's IPv4 address on the wire: 10.77.0.11 for guest 1.
func Wire4(id int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 77, 0, byte(10 + id)}), WireHost4.Bits())
}

// Wire6 returns a guest's IPv6 address on the wire, the RDMA network: fd77::11 for guest 1.
func Wire6(id int) netip.Prefix {
	a := WireHost6.Addr().As16()
	a[15] = byte(0x10 + id)
	return netip.PrefixFrom(netip.AddrFrom16(a), WireHost6.Bits())
}

// WireMAC returns a guest's Ethernet address on the wire.
func WireMAC(id int) string { return fmt.Sprintf("52:54:00:77:00:%02x", 0x10+id) }

// WireHostMAC is the lab's Ethernet address on the wire.
const WireHostMAC = "52:54:00:77:00:01"

// ControlMAC returns a guest's Ethernet address on its control link.
func ControlMAC(id int) string { return fmt.Sprintf("52:54:00:78:00:%02x", 0x10+id) }

// ControlAddr returns a guest's address on its control link: 10.78.1.2 for guest 1.
func ControlAddr(id int) netip.Prefix { return controlAddr(id, 2) }

// ControlHostAddr returns the lab's address on a guest's control link.
func ControlHostAddr(id int) netip.Prefix { return controlAddr(id, 1) }

// controlAddr returns an address in the subnet of a guest's control link; last is its last byte.
func controlAddr(id int, last byte) netip.Prefix {
	const bits = 24
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 78, byte(id), last}), bits)
}

// Marks that a guest prints on its console.
const (
	// ReadyMark is followed by the seconds since boot.
	ReadyMark = "fabrictest-guest: ready after "
	// FailedMark is followed by the reason.
	FailedMark = "fabrictest-guest: failed: "
)

// Device is a software RDMA device of the kernel.
type Device string

// The devices that a guest can have.
const (
	RXE Device = "rxe" // soft-RoCE, called rxe0
	SIW Device = "siw" // soft-iWARP, called siw0
	// SIWCRC is soft-iWARP built to request the MPA CRC, without an option. Its name is siw0.
	SIWCRC Device = "siw-crc"
)

// DevicesFile has the devices of a guest, in the format of ParseDevices. It does
// not exist while they are changed, or if that failed.
const DevicesFile = "/run/devices"

// ParseDevices parses a comma-separated list of devices. "both" is rxe and siw; "none" is empty.
func ParseDevices(list string) ([]Device, error) {
	switch list {
	case "none":
		return nil, nil
	case "both":
		return []Device{RXE, SIW}, nil
	}
	var all []Device
	for name := range strings.SplitSeq(list, ",") {
		all = append(all, Device(name))
	}
	return all, CheckDevices(all)
}

// CheckDevices returns an error for an unknown device and for two devices of a kind.
func CheckDevices(all []Device) error {
	for i, d := range all {
		switch {
		case d != RXE && d != SIW && d != SIWCRC:
			return fmt.Errorf("no device %q: there are rxe, siw and siw-crc; rxe,siw stands for both", d)
		case slices.ContainsFunc(all[:i], func(e Device) bool { return e.Kind() == d.Kind() }):
			return fmt.Errorf("two devices of kind %s: a guest has one of each at most", d.Kind())
		}
	}
	return nil
}

// Kind returns the type of the device in the kernel, rxe or siw, as 'rdma link add' takes it.
func (d Device) Kind() string {
	if d == SIWCRC {
		return string(SIW)
	}
	return string(d)
}

// Name returns the name of the device in the guest, such as rxe0.
func (d Device) Name() string { return d.Kind() + "0" }

// NeedsSIW reports whether the devices need siw, which Debian's kernels lack.
func NeedsSIW(all []Device) bool {
	return slices.ContainsFunc(all, func(d Device) bool { return d.Kind() == string(SIW) })
}

// formatDevices returns devices in the format of ParseDevices.
func formatDevices(all []Device) string {
	if len(all) == 0 {
		return "none"
	}
	names := make([]string, 0, len(all))
	for _, d := range all {
		names = append(names, string(d))
	}
	return strings.Join(names, ",")
}
