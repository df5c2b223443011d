package kernel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/fabrictest/fabrictest/lab/daemon"
	"github.com/fabrictest/fabrictest/lab/kernel/guest"
)

// Remote is a client of a lab of Start. Each call uses one connection, and ends
// early with its context. It needs no Close.
type Remote struct {
	guestClient
	name string
	// guests is set for a program in the lab's namespace, which reaches guests
	// directly, and not the lab.
	guests int
}

func newRemote(name string, guests int) *Remote {
	r := &Remote{name: name, guests: guests}
	r.dial = r.dialThroughLab
	return r
}

// Connect finds a lab by its name, or returns a NotUpError. In a program that runs
// in a lab's namespace it returns that lab, with Exec, Output, Put and SetDevices
// only.
func Connect(name string) (*Remote, error) {
	if n, err := strconv.Atoi(os.Getenv(guestsVar)); err == nil {
		return newRemote(name, n), nil
	}
	if err := kind.Ping(context.Background(), name); err != nil {
		return nil, err
	}
	return newRemote(name, 0), nil
}

// roundTrip sends a request and reads the reply.
func (r *Remote) roundTrip(ctx context.Context, wait time.Duration, q *request) ([]byte, *daemon.Call, error) {
	if r.guests != 0 {
		return nil, nil, errInsideLab
	}
	return kind.RoundTrip(ctx, r.name, wait, q)
}

// Info returns the description of the lab.
func (r *Remote) Info(ctx context.Context) (*Info, error) {
	body, c, err := r.roundTrip(ctx, kind.ReplyTimeout, &request{Op: opStatus})
	if err != nil {
		return nil, err
	}
	var info Info
	if err := json.Unmarshal(body, &info); err != nil {
		return nil, fmt.Errorf("kernel lab %s sent an invalid description: %w", r.name, err)
	}
	info.PID = c.PID // the lab only knows its PID in its own namespace
	return &info, nil
}

// dialThroughLab returns a connection to a guest, which the lab opens. The returned
// context ends with the guest.
func (r *Remote) dialThroughLab(ctx context.Context, id int) (context.Context, context.CancelFunc, net.Conn, error) {
	if r.guests != 0 {
		return r.dialFromInside(ctx, id)
	}
	c, err := kind.Send(ctx, r.name, dialTimeout+kind.ReplyTimeout, &request{Op: opGuest, Guest: id})
	if err != nil {
		return nil, nil, nil, err
	}
	_, err = c.ReadReply()
	if err == nil && len(c.Files) != 1 {
		err = errors.New("the reply has no connection to the guest")
	}
	var conn net.Conn
	if err == nil {
		conn, err = net.FileConn(c.Files[0])
	}
	if err == nil {
		err = c.WaitForever(false)
	}
	if err != nil {
		c.Close()
		return nil, nil, nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		_, err := c.ReadReply() // sent only if the guest ends
		cancel(err)
	}()
	return ctx, func() { cancel(nil); c.Close() }, conn, nil
}

// dialFromInside connects to a guest from within the lab's namespace.
func (r *Remote) dialFromInside(ctx context.Context, id int) (context.Context, context.CancelFunc, net.Conn, error) {
	if id < 1 || id > r.guests {
		return nil, nil, nil, fmt.Errorf("no guest %d: there are 1 to %d", id, r.guests)
	}
	d := net.Dialer{Timeout: dialTimeout}
	conn, err := d.DialContext(ctx, "tcp", netip.AddrPortFrom(guest.Control(id).Addr(), guest.Port).String())
	return ctx, func() {}, conn, err
}

// Restart is like Lab.Restart.
func (r *Remote) Restart(ctx context.Context, id int) error {
	_, _, err := r.roundTrip(ctx, 0, &request{Op: opRestart, Guest: id})
	return err
}

// Impair is like Lab.Impair.
func (r *Remote) Impair(ctx context.Context, id int, m Impairment) error {
	_, _, err := r.roundTrip(ctx, kind.ReplyTimeout, &request{Op: opSet, Guest: id, Impair: &m})
	return err
}

// SetLink is like Lab.SetLink.
func (r *Remote) SetLink(ctx context.Context, id int, up bool) error {
	_, _, err := r.roundTrip(ctx, kind.ReplyTimeout, &request{Op: opSet, Guest: id, Link: up})
	return err
}

// Console is like Lab.Console.
func (r *Remote) Console(ctx context.Context, id int) (string, error) {
	text, _, err := r.roundTrip(ctx, kind.ReplyTimeout, &request{Op: opConsole, Guest: id})
	return string(text), err
}

// Run runs a program in the lab's namespace with the descriptors of this process,
// and returns its exit code, or 128 plus the signal number. It uses the PATH of
// this process, and forwards signals.
func (r *Remote) Run(ctx context.Context, args []string, signals <-chan os.Signal) (code int, err error) {
	if r.guests != 0 {
		return 0, errInsideLab
	}
	q := &request{Op: opRun}
	if q.Program, err = daemon.NewProgram(args); err != nil {
		return 0, err
	}
	c, err := kind.Send(ctx, r.name, 0, q, os.Stdin, os.Stdout, os.Stderr)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	return c.AwaitExit(signals)
}

// Down takes the lab down and returns when it has ended.
func (r *Remote) Down(ctx context.Context) error {
	if r.guests != 0 {
		return errInsideLab
	}
	return kind.Down(ctx, r.name, &request{Op: opDown})
}

// guestClient sends commands to guests.
type guestClient struct {
	// dial connects to a guest's command server. The returned context ends with the
	// guest; stop releases it.
	dial func(ctx context.Context, id int) (_ context.Context, stop context.CancelFunc, _ net.Conn, _ error)
}

// Exec runs a program in a guest and returns its exit code; see guest.Exec. If the
// guest ends, it returns a GuestError.
func (g *guestClient) Exec(ctx context.Context, id int, c guest.Command) (code int, err error) {
	err = g.withConn(ctx, id, func(ctx context.Context, conn net.Conn) (err error) {
		code, err = guest.Exec(ctx, conn, c)
		return err
	})
	return code, err
}

// Output runs a program in a guest and returns its output.
func (g *guestClient) Output(ctx context.Context, id int, c guest.Command) (output string, code int, err error) {
	err = g.withConn(ctx, id, func(ctx context.Context, conn net.Conn) (err error) {
		output, code, err = guest.Output(ctx, conn, c)
		return err
	})
	return output, code, err
}

// Put writes a file in a guest; see guest.Put.
func (g *guestClient) Put(ctx context.Context, id int, path string, mode os.FileMode, size int64, from io.Reader) error {
	return g.withConn(ctx, id, func(ctx context.Context, conn net.Conn) error {
		return guest.Put(ctx, conn, path, mode, size, from)
	})
}

// SetDevices replaces the RDMA devices of a guest.
func (g *guestClient) SetDevices(ctx context.Context, id int, devices []guest.Device) error {
	return g.withConn(ctx, id, func(ctx context.Context, conn net.Conn) error {
		return guest.SetDevices(ctx, conn, devices)
	})
}

// withConn calls do with a connection to a guest, and returns a GuestError if the guest ends.
func (g *guestClient) withConn(ctx context.Context, id int, do func(context.Context, net.Conn) error) error {
	ctx, stop, conn, err := g.dial(ctx, id)
	if err != nil {
		return err
	}
	defer stop()
	return guestExitError(ctx, do(ctx, conn))
}

// Start starts a lab in a detached process, and returns when its guests are ready.
func Start(ctx context.Context, name string, cfg Config) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if _, err := cfg.withDefaults(); err != nil {
		return err
	}
	if err := cfg.absolute(); err != nil {
		return err
	}
	if kind.Ping(ctx, name) == nil {
		return ErrAlreadyUp
	}
	if err := prepareLabDir(name, &cfg); err != nil {
		return err
	}
	return kind.Start(ctx, name, cfg)
}

// prepareLabDir removes old consoles from the directory of a lab. A user without a cache
// directory has none.
func prepareLabDir(name string, cfg *Config) error {
	log := kind.CrashLog(name)
	if log == "" {
		return nil
	}
	dir := filepath.Dir(log)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	old, _ := filepath.Glob(filepath.Join(dir, "guest*.console"))
	for _, f := range old {
		if err := os.Remove(f); err != nil {
			return err
		}
	}
	if cfg.Consoles == "" {
		cfg.Consoles = dir
	}
	return nil
}

// List returns the names of this user's kernel labs.
func List() (names []string, err error) { return kind.List(context.Background()) }
