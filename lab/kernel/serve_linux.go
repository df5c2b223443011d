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

// The descriptors that Start passes to a lab's process.
const (
	listenerFD = 3
	readyFD    = 4
)

// ServeMain is the main function of a lab's process.
func ServeMain() error {
	ready := os.NewFile(readyFD, "ready")
	s, err := newServer(ready)
	readyErr := json.NewEncoder(ready).Encode(errorResponse(err))
	ready.Close()
	if err != nil {
		return err
	}
	if readyErr != nil {
		return errors.Join(readyErr, s.lab.Down()) // the process that called Start is gone
	}
	return s.serve()
}

// server is the process of a lab.
type server struct {
	job
	lab      *Lab
	listener *net.UnixListener
	ctx      context.Context // of all requests
	cancel   context.CancelFunc
	down     sync.Once
}

func newServer(ready *os.File) (*server, error) {
	s := &server{}
	if err := json.NewDecoder(os.Stdin).Decode(&s.job); err != nil {
		return nil, fmt.Errorf("read the job: %w", err)
	}
	// Do not keep the working directory from being removed or unmounted.
	if err := os.Chdir("/"); err != nil {
		return nil, err
	}
	// SO_PEERCRED of clients has the PID of the process that called listen last.
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
	// The reader of the pipe closes it when Start is cancelled.
	booting, cancel := context.WithCancelCause(s.ctx)
	defer cancel(nil)
	go func() {
		if pollClosed(ready) {
			cancel(errors.New("the process that called Start has ended"))
		}
	}()
	s.lab, err = Up(booting, s.Config)
	return s, err
}

// pollClosed waits until the reader of a pipe has closed it.
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
	// Caught, not ignored: programs would inherit ignored signals.
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
			time.Sleep(10 * time.Millisecond) // out of descriptors: retry
			continue
		}
		go s.handleConn(conn)
	}
}

func (s *server) stop() {
	s.down.Do(func() {
		s.cancel()
		s.listener.Close()
	})
}

// requestTimeout is how long a client may take to send its request, and maxRequest
// its maximum length, most of which is the environment.
const (
	requestTimeout = 10 * time.Second
	maxRequest     = 4 << 20
)

// handleConn handles the request of one client.
func (s *server) handleConn(conn *net.UnixConn) {
	defer conn.Close()
	if cred, err := peerCred(conn); err != nil || int(cred.Uid) != os.Getuid() {
		return // not the user who started the lab
	}
	_ = conn.SetDeadline(time.Now().Add(requestTimeout))
	files, err := receiveFiles(conn)
	if err != nil {
		return
	}
	defer closeAll(files)
	c := &client{conn: conn, files: files, in: json.NewDecoder(&limitedConn{conn, maxRequest})}
	var r request
	if err := c.in.Decode(&r); err != nil {
		c.respond(errorResponse(fmt.Errorf("invalid request: %w", err)))
		return
	}
	_ = conn.SetDeadline(time.Time{})
	if err := s.handleRequest(c, &r); err != nil {
		c.respond(errorResponse(err))
	}
}

// client is a connected client.
type client struct {
	conn  *net.UnixConn
	files []*os.File
	in    *json.Decoder
	mu    sync.Mutex
}

// respond sends a response with descriptors. The client may have disconnected.
func (c *client) respond(a response, files ...*os.File) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if sendFiles(c.conn, files...) == nil {
		_ = json.NewEncoder(c.conn).Encode(a)
	}
}

// disconnected returns a channel that is closed when the client disconnects.
func (c *client) disconnected() <-chan struct{} {
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for c.in.Decode(&signalMessage{}) == nil {
		}
	}()
	return gone
}

func (s *server) handleRequest(c *client, r *request) error {
	switch r.Op {
	case opStatus:
		i := s.Config.Image
		c.respond(response{Info: &Info{
			Name: s.Name, Series: i.Series, Release: i.Release, Accel: s.lab.Accel(), Devices: s.lab.cfg.Devices, MTU: s.lab.cfg.MTU,
			Guests: s.lab.Status(), Consoles: s.Config.Consoles,
		}})
	case opGuest:
		return s.serveGuestConn(c, r.Guest)
	case opRestart:
		c.respond(errorResponse(s.lab.Restart(s.ctx, r.Guest)))
	case opConsole:
		text, err := s.lab.Console(r.Guest)
		if err != nil {
			return err
		}
		c.respond(response{Text: text})
	case opSet:
		if r.Impair == nil {
			c.respond(errorResponse(s.lab.SetLink(r.Guest, r.Link)))
		} else {
			c.respond(errorResponse(s.lab.Impair(r.Guest, *r.Impair)))
		}
	case opSocket:
		return s.openSocket(c, r)
	case opRun:
		return s.run(c, r)
	case opDown:
		c.respond(response{}) // the client may not wait
		s.stop()
		select {} // the connection closes when the process exits
	default:
		return fmt.Errorf("unknown operation %q: is the client of another version?", r.Op)
	}
	return nil
}

// serveGuestConn sends a client a connection to a guest, and an error if the guest
// ends, because its connection does not close then.
func (s *server) serveGuestConn(c *client, id int) error {
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
	c.respond(response{}, file)
	file.Close()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.disconnected():
		return nil
	}
}

// limitedConn reads at most remaining bytes.
type limitedConn struct {
	*net.UnixConn
	remaining int
}

func (l *limitedConn) Read(b []byte) (int, error) {
	if l.remaining == 0 {
		return 0, errors.New("the request is too long")
	}
	n, err := l.UnixConn.Read(b[:min(len(b), l.remaining)])
	l.remaining -= n
	return n, err
}
