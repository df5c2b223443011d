package kernel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The descriptors that Start hands to a lab's process.
const (
	listenerFD = 3
	readyFD    = 4
)

// ServeMain is what the process of a lab does, until it is told to go.
func ServeMain() error {
	ready := os.NewFile(readyFD, "ready")
	s, err := newServer(ready)
	told := json.NewEncoder(ready).Encode(failed(err))
	ready.Close()
	if err != nil {
		return err
	}
	if told != nil {
		return errors.Join(told, s.lab.Down()) // whoever brought us up is gone
	}
	return s.serve()
}

// server is the process of a lab.
type server struct {
	job
	lab      *Lab
	listener *net.UnixListener
	ctx      context.Context // of all that is asked for
	cancel   context.CancelFunc
	down     sync.Once
}

func newServer(ready *os.File) (*server, error) {
	s := &server{}
	if err := json.NewDecoder(os.Stdin).Decode(&s.job); err != nil {
		return nil, fmt.Errorf("read what to bring up: %w", err)
	}
	// Nothing of where we were started may be kept from being removed or unmounted.
	if err := os.Chdir("/"); err != nil {
		return nil, err
	}
	// Clients see the process that listened last: now it is this one, by its number
	// outside, which it does not know itself.
	const backlog = 128
	if err := unix.Listen(listenerFD, backlog); err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	file := os.NewFile(listenerFD, "listener")
	defer file.Close()
	l, err := net.FileListener(file)
	if err != nil {
		return nil, err
	}
	s.listener = l.(*net.UnixListener)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	// Who waits for us may lose his patience: the pipe's other end is closed then.
	booting, cancel := context.WithCancelCause(s.ctx)
	defer cancel(nil)
	go func() {
		if pollClosed(ready) {
			cancel(errors.New("nobody waits for the lab any more"))
		}
	}()
	s.lab, err = Up(booting, s.Config)
	return s, err
}

// pollClosed waits until the reader of a pipe is gone.
func pollClosed(pipe *os.File) bool {
	fds := []unix.PollFd{{Fd: int32(pipe.Fd()), Events: 0}}
	for {
		_, err := unix.Poll(fds, -1)
		if !errors.Is(err, unix.EINTR) {
			return err == nil && fds[0].Revents&unix.POLLERR != 0
		}
	}
}

func (s *server) serve() error {
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	// Taken, not ignored: programs would inherit that, and no Ctrl-C would reach them.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGHUP)
	go func() {
		<-term
		s.stop()
	}()
	for {
		conn, err := s.listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return s.lab.Down()
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // too many descriptors: some will be closed
			continue
		}
		go s.attend(conn)
	}
}

func (s *server) stop() {
	s.down.Do(func() {
		s.cancel()
		s.listener.Close()
	})
}

// hurry is how long a client may take to say what it wants, and maxRequest how long
// that may be: a program's environment is most of it.
const (
	hurry      = 10 * time.Second
	maxRequest = 4 << 20
)

// attend serves one client.
func (s *server) attend(conn *net.UnixConn) {
	defer conn.Close()
	if who, err := peer(conn); err != nil || int(who.Uid) != os.Getuid() {
		return // not the user who started the lab
	}
	_ = conn.SetDeadline(time.Now().Add(hurry))
	files, err := receiveFiles(conn)
	if err != nil {
		return
	}
	defer closeAll(files)
	c := &client{conn: conn, files: files, in: json.NewDecoder(&limited{conn, maxRequest})}
	var r request
	if err := c.in.Decode(&r); err != nil {
		c.answer(failed(fmt.Errorf("the request cannot be understood: %w", err)))
		return
	}
	_ = conn.SetDeadline(time.Time{})
	if err := s.obey(c, &r); err != nil {
		c.answer(failed(err))
	}
}

// client is one that is served.
type client struct {
	conn  *net.UnixConn
	files []*os.File
	in    *json.Decoder
	mu    sync.Mutex
}

// answer sends one, with descriptors. The client may be gone.
func (c *client) answer(a answer, files ...*os.File) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if sendFiles(c.conn, files...) == nil {
		_ = json.NewEncoder(c.conn).Encode(a)
	}
}

// gone is closed when the client has hung up.
func (c *client) gone() <-chan struct{} {
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for c.in.Decode(&signalled{}) == nil {
		}
	}()
	return gone
}

func (s *server) obey(c *client, r *request) error {
	switch r.Verb {
	case askStatus:
		i := s.Config.Image
		c.answer(answer{Info: &Info{
			Name: s.Name, Series: i.Series, Release: i.Release, Accel: s.lab.Accel(), Devices: s.lab.cfg.Devices, MTU: s.lab.cfg.MTU,
			Guests: s.lab.Status(), Consoles: s.Config.Consoles,
		}})
	case askGuest:
		return s.lend(c, r.Guest)
	case askRestart:
		c.answer(failed(s.lab.Restart(s.ctx, r.Guest)))
	case askConsole:
		text, err := s.lab.Console(r.Guest)
		if err != nil {
			return err
		}
		c.answer(answer{Text: text})
	case askSet:
		if r.Impair == nil {
			c.answer(failed(s.lab.SetLink(r.Guest, r.Link)))
		} else {
			c.answer(failed(s.lab.Impair(r.Guest, *r.Impair)))
		}
	case askSocket:
		return s.open(c, r)
	case askRun:
		return s.run(c, r)
	case askDown:
		c.answer(answer{}) // it may not want to wait
		s.stop()
		select {} // the kernel closes the connection when everything has ended
	default:
		return fmt.Errorf("%q is nothing that a kernel lab does: is it of another version?", r.Verb)
	}
	return nil
}

// lend gives a client a connection to what serves in a guest, and tells it if the
// guest goes: of a machine that is off no connection says so.
func (s *server) lend(c *client, id int) error {
	ctx, stop, conn, err := s.lab.dial(s.ctx, id)
	if err != nil {
		return err
	}
	defer stop()
	file, err := conn.(*net.TCPConn).File()
	conn.Close()
	if err != nil {
		return err
	}
	c.answer(answer{}, file)
	file.Close()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.gone():
		return nil
	}
}

// limited reads no more than so many octets.
type limited struct {
	*net.UnixConn
	left int
}

func (l *limited) Read(b []byte) (int, error) {
	if l.left == 0 {
		return 0, errors.New("the request is too long")
	}
	n, err := l.UnixConn.Read(b[:min(len(b), l.left)])
	l.left -= n
	return n, err
}
