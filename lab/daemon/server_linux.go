package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/control"
)

// The descriptors that Start passes to a lab's process.
const (
	listenerFD = 3
	readyFD    = 4
)

// backlog is the accept queue of the socket; the kernel may allow less.
const backlog = 4096

// labJob is the input of a lab's process, on its standard input.
type labJob struct {
	Name     string
	CrashLog string // where standard error goes
	Job      any
}

// Lab handles requests of type R.
type Lab[R any] interface {
	// Handle handles a request, and sends the answer. If it returns an error, that is the
	// answer. Requests are handled concurrently.
	Handle(c *Client, r *R) error
	// Close is called at the end, when no more requests are accepted.
	Close() error
}

// Serve runs a lab, in the process that Start has started: it decodes the job of Start into job, a
// pointer, calls build, which makes the lab from the job, and serves requests until the lab is taken
// down. The context of build ends if the process that called Start ends.
func Serve[R any](k *Kind, job any, build func(ctx context.Context, name string) (Lab[R], error)) error {
	file := os.NewFile(readyFD, "ready")
	ready := control.New(file, control.Config{})
	s, err := newServer(k, file, job, build)
	if err != nil {
		ready.Close(k.encode(err))
		return err
	}
	err = ready.Write(control.Frame{Kind: control.Reply})
	file.Close()
	if err != nil {
		return errors.Join(err, s.lab.Close()) // the process that called Start is gone
	}
	defer removeEmptyCrashLog(s.crashLog)
	return s.serve()
}

// encode converts a lab's error to the error that a client receives, by EncodeError if it is set.
func (k *Kind) encode(err error) error {
	if k.EncodeError != nil {
		return k.EncodeError(err)
	}
	return err
}

// server is a lab and its socket.
type server[R any] struct {
	kind     *Kind
	lab      Lab[R]
	listener *net.UnixListener
	crashLog string // file of standard error; empty for none
	log      io.Writer
	panics   atomic.Int64
	stopOnce sync.Once
}

// newServer reads the job from standard input into job, listens on the socket that Start bound,
// and builds the lab. ready is a pipe to the process that called Start; build's context ends
// when that process closes it.
func newServer[R any](k *Kind, ready *os.File, job any, build func(context.Context, string) (Lab[R], error)) (*server[R], error) {
	j := labJob{Job: job}
	if err := json.NewDecoder(os.Stdin).Decode(&j); err != nil {
		return nil, fmt.Errorf("read the job: %w", err)
	}
	// Do not keep the working directory from being removed or unmounted.
	if err := os.Chdir("/"); err != nil {
		return nil, err
	}
	// Start has called listen too, but SO_PEERCRED gives clients the PID of the process
	// that called listen last.
	if err := unix.Listen(listenerFD, backlog); err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	file := os.NewFile(listenerFD, "listener")
	defer file.Close()
	l, err := net.FileListener(file)
	if err != nil {
		return nil, err
	}
	s := &server[R]{kind: k, listener: l.(*net.UnixListener), crashLog: j.CrashLog, log: os.Stderr}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	fd := int32(ready.Fd()) // not in the goroutine: the caller closes the file meanwhile
	go func() {
		fds := []unix.PollFd{{Fd: fd}}
		_, err := unix.Poll(fds, -1)
		for errors.Is(err, unix.EINTR) {
			_, err = unix.Poll(fds, -1)
		}
		if err == nil && fds[0].Revents&unix.POLLERR != 0 { // the reader of the pipe has closed its end
			cancel(errors.New("the process that called Start has ended"))
		}
	}()
	s.lab, err = build(ctx, j.Name)
	return s, err
}

// serve handles each client in a goroutine until stop or SIGTERM, then closes the lab.
func (s *server[R]) serve() error {
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
			return s.lab.Close()
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // for instance out of descriptors: retry
			continue
		}
		go s.handleConn(conn)
	}
}

// stop makes serve close the lab and return.
func (s *server[R]) stop() { s.stopOnce.Do(func() { s.listener.Close() }) }

// Client is a connected client with its request.
type Client struct {
	Frames *control.Conn
	Files  []*os.File // from the client

	conn     *net.UnixConn
	stop     func() // ends the lab
	answered bool
}

// handleConn handles the request of one client, which must be of the user who started the lab. If
// the handler fails or panics, the client gets the error.
func (s *server[R]) handleConn(conn *net.UnixConn) {
	defer conn.Close()
	if cred, err := peerCred(conn); err != nil || int(cred.Uid) != os.Getuid() {
		return // not the user who started the lab
	}
	_ = conn.SetDeadline(time.Now().Add(s.kind.RequestTimeout))
	files, err := ReceiveFiles(conn)
	if err != nil {
		return
	}
	defer CloseAll(files)
	c := &Client{Frames: control.New(conn, control.Config{Limits: control.ProgramLimits}), Files: files, conn: conn, stop: s.stop}
	fail := func(err error) {
		_ = c.Answer() // before the error the client expects descriptors; does nothing if Handle has sent them
		c.Frames.Close(s.kind.encode(err))
	}
	defer s.recoverPanic(fail)
	var r R
	if err := c.Frames.ReadHello(s.kind.protocol(), &r); err != nil {
		fail(fmt.Errorf("invalid request: %w", err))
		return
	}
	_ = conn.SetDeadline(time.Time{})
	if err := s.lab.Handle(c, &r); err != nil {
		fail(err)
	}
}

// Answer starts the answer to a request by sending descriptors; it omits nil files. Handle must
// call it before it sends frames; later calls do nothing.
func (c *Client) Answer(files ...*os.File) error {
	if c.answered {
		return nil
	}
	c.answered = true
	return SendFiles(c.conn, files...)
}

// Reply answers a request with descriptors and a Reply frame with a body.
func (c *Client) Reply(body []byte, files ...*os.File) error {
	if err := c.Answer(files...); err != nil {
		return err
	}
	return c.Frames.Write(control.Frame{Kind: control.Reply, Body: body})
}

// ReplyJSON answers a request with a value as JSON.
func (c *Client) ReplyJSON(v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return c.Reply(body)
}

// Down answers the request to take the lab down, and ends the lab. It never returns, so that the
// connection stays open until the process exits: its end shows the client that the lab has ended.
func (c *Client) Down() {
	_ = c.Reply(nil) // the client may have disconnected
	c.stop()
	select {}
}
