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

// Remote is a lab that stays up, in a process of its own. It needs no closing: each
// call is a connection, and ends early with its context.
type Remote struct {
	guestCalls
	name string
	// guests is how many there are, for a program that runs on the lab's network, where
	// the lab's own socket is not: it reaches guests directly, and nothing else.
	guests int
}

func newRemote(name string, guests int) *Remote {
	r := &Remote{name: name, guests: guests}
	r.dial = r.borrow
	return r
}

// Connect finds a lab by its name; that there is none is a NotUpError. A program
// that runs on a lab's network gets that lab, whatever the name: of it, Exec, Output,
// Put and SetDevices.
func Connect(name string) (*Remote, error) {
	if n, err := strconv.Atoi(os.Getenv(insideVariable)); err == nil {
		return newRemote(name, n), nil
	}
	conn, _, err := dial(name)
	if err != nil {
		return nil, err
	}
	return newRemote(name, 0), conn.Close()
}

// one sends a request and takes its one answer.
func (r *Remote) one(ctx context.Context, wait time.Duration, q request) (answer, []*os.File, *call, error) {
	if r.guests != 0 {
		return answer{}, nil, nil, errInside
	}
	c, err := ask(ctx, r.name, wait, q)
	if err != nil {
		return answer{}, nil, nil, err
	}
	a, files, err := c.answer()
	c.close()
	return a, files, c, err
}

// Info is what the lab is like.
func (r *Remote) Info(ctx context.Context) (*Info, error) {
	a, _, c, err := r.one(ctx, promptly, request{Verb: askStatus})
	if err != nil {
		return nil, err
	}
	if a.Info == nil {
		return nil, fmt.Errorf("kernel lab %s did not say what it is like: is it of another version?", r.name)
	}
	a.Info.PID = c.pid // in its PID namespace it is called something else
	return a.Info, nil
}

// borrow is a connection to what serves in a guest. The context that it returns ends
// when the guest does.
func (r *Remote) borrow(ctx context.Context, id int) (context.Context, context.CancelFunc, net.Conn, error) {
	if r.guests != 0 {
		return r.reach(ctx, id)
	}
	c, err := ask(ctx, r.name, dialTimeout+promptly, request{Verb: askGuest, Guest: id})
	if err != nil {
		return nil, nil, nil, err
	}
	_, files, err := c.answer()
	if err == nil && len(files) != 1 {
		err = errors.New("no connection to the guest came along")
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
		_, _, err := c.answer() // there is one only if something went wrong
		cancel(err)
	}()
	return ctx, func() { cancel(nil); c.close() }, conn, nil
}

// reach connects to a guest from within the lab's network.
func (r *Remote) reach(ctx context.Context, id int) (context.Context, context.CancelFunc, net.Conn, error) {
	if id < 1 || id > r.guests {
		return nil, nil, nil, fmt.Errorf("no guest %d: there are 1 to %d", id, r.guests)
	}
	d := net.Dialer{Timeout: dialTimeout}
	conn, err := d.DialContext(ctx, "tcp", netip.AddrPortFrom(guest.Control(id).Addr(), guest.Port).String())
	return ctx, func() {}, conn, err
}

// Restart is Lab's.
func (r *Remote) Restart(ctx context.Context, id int) error {
	_, _, _, err := r.one(ctx, 0, request{Verb: askRestart, Guest: id})
	return err
}

// Impair is Lab's.
func (r *Remote) Impair(ctx context.Context, id int, m Impairment) error {
	_, _, _, err := r.one(ctx, promptly, request{Verb: askSet, Guest: id, Impair: &m})
	return err
}

// SetLink is Lab's.
func (r *Remote) SetLink(ctx context.Context, id int, up bool) error {
	_, _, _, err := r.one(ctx, promptly, request{Verb: askSet, Guest: id, Link: up})
	return err
}

// Console is Lab's.
func (r *Remote) Console(ctx context.Context, id int) (string, error) {
	a, _, _, err := r.one(ctx, promptly, request{Verb: askConsole, Guest: id})
	return a.Text, err
}

// packetNetwork is what a packet socket is asked for with.
const packetNetwork = "packet"

// socket is a descriptor of one in the lab's namespace.
func (r *Remote) socket(ctx context.Context, network, address string, listen bool) (*os.File, error) {
	q := request{Verb: askSocket, Network: network, Address: address, Listen: listen}
	_, files, _, err := r.one(ctx, dialTimeout+promptly, q)
	if err != nil {
		return nil, err
	}
	if len(files) != 1 {
		closeAll(files)
		return nil, errors.New("no socket came along")
	}
	return files[0], nil
}

// Dial connects to an address from within the lab's namespace: this process need
// not be there.
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

// PacketSocket opens a raw packet socket on an interface of the lab's namespace,
// JudgeDevice for instance, that sees all frames that pass. It does not block.
func (r *Remote) PacketSocket(ctx context.Context, device string) (*os.File, error) {
	return r.socket(ctx, packetNetwork, device, false)
}

// Run runs a program in the lab's namespace, with the descriptors of this process,
// and returns its exit code, or 128 and the number of the signal that ended it. It is
// looked for on our PATH. Signals are passed on to it.
func (r *Remote) Run(ctx context.Context, args []string, signals <-chan os.Signal) (code int, err error) {
	if r.guests != 0 {
		return 0, errInside
	}
	q := request{Verb: askRun, Args: args, Env: os.Environ()}
	if q.Path, err = exec.LookPath(args[0]); err != nil {
		return 0, err
	}
	if q.Dir, err = os.Getwd(); err != nil {
		return 0, err
	}
	c, err := ask(ctx, r.name, 0, q, os.Stdin, os.Stdout, os.Stderr)
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
				if n, ok := s.(syscall.Signal); ok && to.Encode(signalled{int(n)}) != nil {
					return
				}
			case <-ended:
				return
			}
		}
	}()
	a, _, err := c.answer()
	if err != nil {
		return 0, err
	}
	if a.Exit == nil {
		return 0, errors.New("the lab did not say how the program ended")
	}
	return *a.Exit, nil
}

// Down takes the lab down and returns when it is gone.
func (r *Remote) Down(ctx context.Context) error {
	if r.guests != 0 {
		return errInside
	}
	c, err := ask(ctx, r.name, 2*promptly, request{Verb: askDown})
	if err != nil {
		return err
	}
	defer c.close()
	if _, _, err := c.answer(); err != nil {
		return err
	}
	// The lab closes the connection by ending.
	var gone *NotUpError
	if _, _, err := c.answer(); !errors.As(err, &gone) {
		return err
	}
	for end := time.Now().Add(promptly); time.Now().Before(end); time.Sleep(time.Millisecond) {
		conn, _, err := dial(r.name)
		if errors.As(err, &gone) {
			return nil
		}
		if err != nil {
			return err
		}
		conn.Close()
	}
	return fmt.Errorf("kernel lab %s is still there after %v", r.name, promptly)
}
