package kernel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

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
	conn, _, err := dial(name)
	if err != nil {
		return nil, err
	}
	return newRemote(name, 0), conn.Close()
}

// roundTrip sends a request and reads one response.
func (r *Remote) roundTrip(ctx context.Context, wait time.Duration, q request) (response, []*os.File, *call, error) {
	if r.guests != 0 {
		return response{}, nil, nil, errInsideLab
	}
	c, err := sendRequest(ctx, r.name, wait, q)
	if err != nil {
		return response{}, nil, nil, err
	}
	a, files, err := c.readResponse()
	c.close()
	return a, files, c, err
}

// Info returns the description of the lab.
func (r *Remote) Info(ctx context.Context) (*Info, error) {
	a, _, c, err := r.roundTrip(ctx, replyTimeout, request{Op: opStatus})
	if err != nil {
		return nil, err
	}
	if a.Info == nil {
		return nil, fmt.Errorf("kernel lab %s sent no description: is it of another version?", r.name)
	}
	a.Info.PID = c.pid // the lab only knows its PID in its own namespace
	return a.Info, nil
}

// dialThroughLab returns a connection to a guest, which the lab opens. The returned
// context ends with the guest.
func (r *Remote) dialThroughLab(ctx context.Context, id int) (context.Context, context.CancelFunc, net.Conn, error) {
	if r.guests != 0 {
		return r.dialFromInside(ctx, id)
	}
	c, err := sendRequest(ctx, r.name, dialTimeout+replyTimeout, request{Op: opGuest, Guest: id})
	if err != nil {
		return nil, nil, nil, err
	}
	_, files, err := c.readResponse()
	if err == nil && len(files) != 1 {
		err = errors.New("the response has no connection to the guest")
	}
	var conn net.Conn
	if err == nil {
		conn, err = net.FileConn(files[0])
	}
	closeAll(files)
	if err != nil {
		c.close()
		return nil, nil, nil, err
	}
	_ = c.conn.SetDeadline(time.Time{})
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		_, _, err := c.readResponse() // sent only if the guest ends
		cancel(err)
	}()
	return ctx, func() { cancel(nil); c.close() }, conn, nil
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
	_, _, _, err := r.roundTrip(ctx, 0, request{Op: opRestart, Guest: id})
	return err
}

// Impair is like Lab.Impair.
func (r *Remote) Impair(ctx context.Context, id int, m Impairment) error {
	_, _, _, err := r.roundTrip(ctx, replyTimeout, request{Op: opSet, Guest: id, Impair: &m})
	return err
}

// SetLink is like Lab.SetLink.
func (r *Remote) SetLink(ctx context.Context, id int, up bool) error {
	_, _, _, err := r.roundTrip(ctx, replyTimeout, request{Op: opSet, Guest: id, Link: up})
	return err
}

// Console is like Lab.Console.
func (r *Remote) Console(ctx context.Context, id int) (string, error) {
	a, _, _, err := r.roundTrip(ctx, replyTimeout, request{Op: opConsole, Guest: id})
	return a.Text, err
}

// packetNetwork is the network name of packet sockets in requests.
const packetNetwork = "packet"

// socket returns the descriptor of a new socket in the lab's namespace.
func (r *Remote) socket(ctx context.Context, network, address string, listen bool) (*os.File, error) {
	q := request{Op: opSocket, Network: network, Address: address, Listen: listen}
	_, files, _, err := r.roundTrip(ctx, dialTimeout+replyTimeout, q)
	if err != nil {
		return nil, err
	}
	if len(files) != 1 {
		closeAll(files)
		return nil, errors.New("the response has no socket")
	}
	return files[0], nil
}

// Dial connects to an address from within the lab's namespace.
func (r *Remote) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	f, err := r.socket(ctx, network, address, false)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return net.FileConn(f)
}

// Listen listens at an address of the lab's namespace.
func (r *Remote) Listen(ctx context.Context, network, address string) (net.Listener, error) {
	f, err := r.socket(ctx, network, address, true)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return net.FileListener(f)
}

// ListenPacket opens a datagram socket at an address of the lab's namespace.
func (r *Remote) ListenPacket(ctx context.Context, network, address string) (net.PacketConn, error) {
	f, err := r.socket(ctx, network, address, true)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return net.FilePacketConn(f)
}

// PacketSocket opens a non-blocking packet socket on an interface of the lab's
// namespace, such as JudgeDevice.
func (r *Remote) PacketSocket(ctx context.Context, device string) (*os.File, error) {
	return r.socket(ctx, packetNetwork, device, false)
}

// Run runs a program in the lab's namespace with the descriptors of this process,
// and returns its exit code, or 128 plus the signal number. It uses the PATH of
// this process, and forwards signals.
func (r *Remote) Run(ctx context.Context, args []string, signals <-chan os.Signal) (code int, err error) {
	if r.guests != 0 {
		return 0, errInsideLab
	}
	q := request{Op: opRun, Args: args, Env: os.Environ()}
	if q.Path, err = exec.LookPath(args[0]); err != nil {
		return 0, err
	}
	if q.Dir, err = os.Getwd(); err != nil {
		return 0, err
	}
	c, err := sendRequest(ctx, r.name, 0, q, os.Stdin, os.Stdout, os.Stderr)
	if err != nil {
		return 0, err
	}
	defer c.close()
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		to := json.NewEncoder(c.conn)
		for {
			select {
			case s := <-signals:
				if n, ok := s.(syscall.Signal); ok && to.Encode(signalMessage{int(n)}) != nil {
					return
				}
			case <-ended:
				return
			}
		}
	}()
	a, _, err := c.readResponse()
	if err != nil {
		return 0, err
	}
	if a.ExitCode == nil {
		return 0, errors.New("the lab sent no exit code")
	}
	return *a.ExitCode, nil
}

// Down takes the lab down and returns when it has ended.
func (r *Remote) Down(ctx context.Context) error {
	if r.guests != 0 {
		return errInsideLab
	}
	c, err := sendRequest(ctx, r.name, 2*replyTimeout, request{Op: opDown})
	if err != nil {
		return err
	}
	defer c.close()
	if _, _, err := c.readResponse(); err != nil {
		return err
	}
	// The connection closes when the lab's process ends.
	var gone *NotUpError
	if _, _, err := c.readResponse(); !errors.As(err, &gone) {
		return err
	}
	for end := time.Now().Add(replyTimeout); time.Now().Before(end); time.Sleep(time.Millisecond) {
		conn, _, err := dial(r.name)
		if errors.As(err, &gone) {
			return nil
		}
		if err != nil {
			return err
		}
		conn.Close()
	}
	return fmt.Errorf("kernel lab %s is still there after %v", r.name, replyTimeout)
}
