package kernel

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/fabrictest/fabrictest/lab/daemon"
)

// newRemote returns a client of a lab. In a process in the lab's namespace, guests is the number
// of the lab's guests; else it is 0.
func newRemote(name string, guests int) *Remote {
	r := &Remote{name: name, guests: guests}
	r.dial = r.dialThroughLab
	if r.insideLab() {
		r.dial = r.dialFromInside
	}
	return r
}

// insideLab reports whether this process runs in the lab's network namespace.
func (r *Remote) insideLab() bool { return r.guests != 0 }

// Connect finds a lab by its name, or returns a *daemon.NotUpError. In a program that runs in a
// lab's namespace it returns that lab, with Exec, Output, Put and SetDevices only.
func Connect(name string) (*Remote, error) {
	if n, err := strconv.Atoi(os.Getenv(guestsVar)); err == nil {
		return newRemote(name, n), nil
	}
	if err := kernelLabs.Ping(context.Background(), name); err != nil {
		return nil, err
	}
	return newRemote(name, 0), nil // not inside the lab
}

// roundTrip sends a request to the lab's process, and returns the reply and the PID of that
// process. A timeout of 0 means none.
func (r *Remote) roundTrip(ctx context.Context, timeout time.Duration, q *request) (reply []byte, pid int, err error) {
	if r.insideLab() {
		return nil, 0, errInsideLab
	}
	reply, call, err := kernelLabs.RoundTrip(ctx, r.name, timeout, q)
	if err != nil {
		return nil, 0, err
	}
	return reply, call.PID, nil
}

// dialThroughLab returns a connection to a guest, which the lab's process opens and passes as a
// descriptor. The context ends with the guest, which the lab's process reports by a second reply.
func (r *Remote) dialThroughLab(ctx context.Context, id int) (context.Context, context.CancelFunc, net.Conn, error) {
	c, err := kernelLabs.Send(ctx, r.name, dialTimeout+kernelLabs.ReplyTimeout, &request{Op: opGuest, Guest: id})
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
		const detach = false // without a timeout, the call still ends with ctx
		err = c.RemoveTimeout(detach)
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

// dialFromInside connects to a guest from within the lab's namespace. The returned context is ctx,
// which is not cancelled when the guest terminates.
func (r *Remote) dialFromInside(ctx context.Context, id int) (context.Context, context.CancelFunc, net.Conn, error) {
	const labDown = false
	if err := checkGuest(id, r.guests, labDown); err != nil {
		return nil, nil, nil, err
	}
	d := net.Dialer{Timeout: dialTimeout}
	conn, err := d.DialContext(ctx, "tcp", netip.AddrPortFrom(ControlAddr(id).Addr(), GuestPort).String())
	return ctx, func() {}, conn, err
}

// Run runs a program in the lab's namespace with the standard descriptors of this process, and
// returns its exit code, or 128 plus the signal number. It uses the PATH of this process, and
// forwards signals.
func (r *Remote) Run(ctx context.Context, args []string, signals <-chan os.Signal) (code int, err error) {
	if r.insideLab() {
		return 0, errInsideLab
	}
	q := &request{Op: opRun}
	if q.Program, err = daemon.NewProgram(args); err != nil {
		return 0, err
	}
	c, err := kernelLabs.Send(ctx, r.name, noTimeout, q, os.Stdin, os.Stdout, os.Stderr)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	return c.AwaitExit(signals)
}

// Down takes the lab down and returns when it has ended.
func (r *Remote) Down(ctx context.Context) error {
	if r.insideLab() {
		return errInsideLab
	}
	return kernelLabs.Down(ctx, r.name, &request{Op: opDown})
}

// Start starts a lab in a detached process, and returns when its guests are ready.
func Start(ctx context.Context, name string, cfg Config) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if err := cfg.prepareForProcess(); err != nil {
		return err
	}
	if kernelLabs.Ping(ctx, name) == nil {
		return ErrAlreadyUp
	}
	if err := prepareLabDir(name, &cfg); err != nil {
		return err
	}
	return kernelLabs.Start(ctx, name, cfg)
}

// prepareLabDir creates the directory of a lab, in which its crash log will be, and removes the
// console logs of an earlier lab there. If cfg.Consoles is empty, it is set to that directory.
// prepareLabDir does nothing if the user has no cache directory (log is then empty).
func prepareLabDir(name string, cfg *Config) error {
	log := kernelLabs.CrashLog(name)
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
func List() (names []string, err error) { return kernelLabs.List(context.Background()) }
