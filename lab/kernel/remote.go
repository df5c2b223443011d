package kernel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"text/tabwriter"
	"time"

	"github.com/fabrictest/fabrictest/control"
	"github.com/fabrictest/fabrictest/lab/daemon"
)

// ServeCommand is the first argument of a lab's process.
const ServeCommand = "kernel-lab-process"

// ProgramCommand is the first argument of a process that runs a lab for the time of one program.
const ProgramCommand = "kernel-once-process"

// guestsVar is an environment variable in a lab's namespace, with the number of guests.
const guestsVar = "FABRICTEST_KERNEL_GUESTS"

// errInsideLab is returned to programs in a lab's namespace for requests to the lab.
var errInsideLab = errors.New("a program in a lab's network reaches its guests, but not the lab: run the command outside")

// DefaultName is the default name of a lab.
const DefaultName = "kernel"

// Info describes a lab of Start.
type Info struct {
	Name    string   `json:"name"`
	PID     int      `json:"pid"` // of the lab's process
	Series  Series   `json:"series"`
	Release string   `json:"release"` // of the guests' kernel
	Accel   Accel    `json:"accel"`
	Devices []Device `json:"devices"` // at boot
	MTU     int      `json:"mtu"`
	Guests  []Status `json:"guests"`
	// Consoles is the directory of the console logs, which remain after the lab is down.
	Consoles string `json:"consoles,omitempty"`
}

// CheckName returns an error if the name of a lab is invalid.
func CheckName(name string) error { return daemon.CheckName(name) }

// ErrAlreadyUp is returned by Start if a lab of that name exists.
var ErrAlreadyUp = errors.New("a kernel lab of that name is up already: take it down with 'fabrictest lab kernel down', or give another name with --lab")

// kernelLabs finds, starts and talks to the processes of kernel labs.
var kernelLabs = daemon.Kind{
	What: "kernel lab", Prefix: "fabrictest-kernel", Command: ServeCommand, UpCommand: "fabrictest lab kernel up", NameFlag: "--lab", Version: 1,
	LogFile: "kernel-%s/stderr", AlreadyUp: ErrAlreadyUp, ReplyTimeout: 10 * time.Second, RequestTimeout: 10 * time.Second,
	EncodeError: encodeError, DecodeError: decodeError,
}

// codeGuest is the code of a GuestError in a Close frame.
const codeGuest = 1

// encodeError returns the error to send to a client. For a GuestError, the Reason of the returned
// error is the GuestError as JSON.
func encodeError(err error) error {
	var g *GuestError
	if errors.As(err, &g) {
		if text, jsonErr := json.Marshal(g); jsonErr == nil {
			return &control.CloseError{Code: codeGuest, Reason: string(text)}
		}
	}
	return err
}

// decodeError is the inverse of encodeError: it returns the GuestError that failed contains as
// JSON; failed itself if it contains none.
func decodeError(failed *control.CloseError) error {
	g := new(GuestError)
	if failed.Code == codeGuest && json.Unmarshal([]byte(failed.Reason), g) == nil {
		return g
	}
	return failed
}

// operation is the kind of a request.
type operation string

const (
	opStatus  operation = "status"
	opGuest   operation = "guest" // a connection to a guest's command server
	opRestart operation = "restart"
	opConsole operation = "console"
	opSet     operation = "set"
	opRun     operation = "run"
	opDown    operation = "down"
)

// request is a request of a client. The reply to opStatus is an Info, that to opConsole
// text, and others are empty. The answer to opGuest has a descriptor.
type request struct {
	Op    operation `json:"op"`
	Guest int       `json:"guest,omitempty"`
	// For opSet: impairments, or else the link state.
	Impair *Impairment `json:"impair,omitempty"`
	Link   bool        `json:"link,omitempty"`
	// For opRun:
	daemon.Program
}

// WriteTable prints the lab and a line for each guest.
func (info *Info) WriteTable(w io.Writer) error {
	how := "emulated processors"
	if info.Accel == KVM {
		how = "KVM"
	}
	fmt.Fprintf(w, "Kernel lab %s is up: Linux %s, %s, process %d.\n", info.Name, info.Release, how, info.PID)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "  host\t%v\t%v\t\n", HostIPv4, HostIPv6)
	for _, g := range info.Guests {
		state := fmt.Sprintf("ready after %.1f s", g.BootSecs)
		if !g.Up {
			state = g.DownReason
		}
		if link := g.Link.String(); link != "" {
			state += "; " + link
		}
		fmt.Fprintf(t, "  guest %d\t%v\t%v\t%s\n", g.ID, g.IPv4, g.IPv6, state)
	}
	return t.Flush()
}

// Remote is a client of a lab of Start. Each call uses one connection, and ends
// early with its context. It needs no Close.
type Remote struct {
	guestClient
	name string
	// guests is their number in a program in the lab's namespace, which reaches guests directly,
	// but not the lab's process; 0 in other programs.
	guests int
}

// Info returns the description of the lab.
func (r *Remote) Info(ctx context.Context) (*Info, error) {
	body, pid, err := r.roundTrip(ctx, kernelLabs.ReplyTimeout, &request{Op: opStatus})
	if err != nil {
		return nil, err
	}
	var info Info
	if err := json.Unmarshal(body, &info); err != nil {
		return nil, fmt.Errorf("kernel lab %s sent an invalid description: %w", r.name, err)
	}
	info.PID = pid // in its own PID namespace, the lab's process has another PID
	return &info, nil
}

// noTimeout is for requests that take as long as they need.
const noTimeout = 0

// Restart stops a guest and boots it again; see Lab.Restart.
func (r *Remote) Restart(ctx context.Context, id int) error {
	_, _, err := r.roundTrip(ctx, noTimeout, &request{Op: opRestart, Guest: id})
	return err
}

// Impair replaces the impairments of a guest's link; see Lab.Impair.
func (r *Remote) Impair(ctx context.Context, id int, m Impairment) error {
	_, _, err := r.roundTrip(ctx, kernelLabs.ReplyTimeout, &request{Op: opSet, Guest: id, Impair: &m})
	return err
}

// SetLink sets a guest's link up or down.
func (r *Remote) SetLink(ctx context.Context, id int, up bool) error {
	_, _, err := r.roundTrip(ctx, kernelLabs.ReplyTimeout, &request{Op: opSet, Guest: id, Link: up})
	return err
}

// Console returns the end of a guest's console since its boot.
func (r *Remote) Console(ctx context.Context, id int) (string, error) {
	text, _, err := r.roundTrip(ctx, kernelLabs.ReplyTimeout, &request{Op: opConsole, Guest: id})
	return string(text), err
}

// guestClient sends commands to guests.
type guestClient struct {
	// dial connects to a guest's command server. The returned context ends with the
	// guest; stop releases it.
	dial func(ctx context.Context, id int) (_ context.Context, stop context.CancelFunc, _ net.Conn, _ error)
}

// Exec runs a program in a guest and returns its exit code; see Exec. If the
// guest ends, it returns a GuestError.
func (g *guestClient) Exec(ctx context.Context, id int, c Command) (code int, err error) {
	err = g.withConn(ctx, id, func(ctx context.Context, conn net.Conn) (err error) {
		code, err = Exec(ctx, conn, c)
		return err
	})
	return code, err
}

// Output runs a program in a guest and returns its output.
func (g *guestClient) Output(ctx context.Context, id int, c Command) (output string, code int, err error) {
	err = g.withConn(ctx, id, func(ctx context.Context, conn net.Conn) (err error) {
		output, code, err = Output(ctx, conn, c)
		return err
	})
	return output, code, err
}

// Put writes a file in a guest; see Put.
func (g *guestClient) Put(ctx context.Context, id int, f File) error {
	return g.withConn(ctx, id, func(ctx context.Context, conn net.Conn) error { return Put(ctx, conn, f) })
}

// SetDevices replaces the RDMA devices of a guest.
func (g *guestClient) SetDevices(ctx context.Context, id int, devices []Device) error {
	return g.withConn(ctx, id, func(ctx context.Context, conn net.Conn) error { return SetDevices(ctx, conn, devices) })
}

// withConn calls do with a connection to a guest, which do closes. It returns a GuestError if the
// guest ends.
func (g *guestClient) withConn(ctx context.Context, id int, do func(context.Context, net.Conn) error) error {
	ctx, stop, conn, err := g.dial(ctx, id)
	if err != nil {
		return err
	}
	defer stop()
	return guestExitError(ctx, do(ctx, conn))
}
