package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/control"
)

// Socket returns the abstract Unix socket address of a lab of this user. @ stands for a zero byte.
func (k *Kind) Socket(name string) string {
	return fmt.Sprintf("@%s/%d/%s", k.Prefix, os.Geteuid(), name)
}

// otherUserError is returned if a process of another user has bound the socket of a lab's name.
type otherUserError struct {
	name, flag string // flag gives another name
	uid        uint32
}

func (e *otherUserError) Error() string {
	return fmt.Sprintf("the name %s is used by another user, %d: give another name with %s", e.name, e.uid, e.flag)
}

// dial connects to a lab and returns the PID of its process. It fails if the socket is another
// user's, who must not get a client's descriptors and environment.
func (k *Kind) dial(ctx context.Context, name string) (conn *net.UnixConn, pid int, err error) {
	if err := CheckName(name); err != nil {
		return nil, 0, err
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", k.Socket(name))
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		return nil, 0, k.notUp(name)
	case errors.Is(err, unix.EAGAIN): // the backlog is full
		return nil, 0, &NotRespondingError{What: k.What, Name: name}
	case err != nil:
		return nil, 0, err
	}
	conn = c.(*net.UnixConn)
	cred, err := peerCred(conn)
	if err == nil && int(cred.Uid) != os.Geteuid() {
		err = &otherUserError{name, k.NameFlag, cred.Uid}
	}
	if err != nil {
		conn.Close()
		return nil, 0, err
	}
	return conn, int(cred.Pid), nil
}

// Ping returns an error if no lab of the name accepts connections: a *NotUpError if none is up.
func (k *Kind) Ping(ctx context.Context, name string) error {
	conn, _, err := k.dial(ctx, name)
	if err != nil {
		return err
	}
	return conn.Close()
}

// Call is a request in progress.
type Call struct {
	PID    int // of the lab's process
	Frames *control.Conn
	Files  []*os.File // from the lab

	kind       *Kind
	ctx        context.Context // of this call only
	name       string
	hasTimeout bool // Send got a timeout
	conn       *net.UnixConn
	detachCtx  func() bool // keeps the end of ctx from ending the call; false if it has already
}

// clientLimits are the largest sizes of frames from a lab.
var clientLimits = control.Limits{control.Reply: maxReply, control.Pong: 0, control.Exit: 0, control.Close: control.MaxReason}

// Send sends a request with descriptors to a lab, and receives the descriptors of the answer into
// Call.Files. The caller reads the frames that follow, and closes the call, which also ends with
// the context or, unless timeout is 0, after the timeout.
func (k *Kind) Send(ctx context.Context, name string, timeout time.Duration, request any, files ...*os.File) (*Call, error) {
	conn, pid, err := k.dial(ctx, name)
	if err != nil {
		return nil, err
	}
	if timeout > 0 {
		_ = conn.SetDeadline(time.Now().Add(timeout))
	}
	c := &Call{
		PID: pid, Frames: control.New(conn, control.Config{Limits: clientLimits}),
		kind: k, ctx: ctx, name: name, hasTimeout: timeout > 0, conn: conn,
	}
	c.detachCtx = context.AfterFunc(ctx, func() { _ = conn.SetDeadline(past) }) // ends blocked reads and writes
	if err = SendFiles(conn, files...); err == nil {
		err = c.Frames.SendHello(k.protocol(), request)
	}
	if err == nil {
		c.Files, err = ReceiveFiles(conn)
	}
	if err != nil {
		c.Close()
		return nil, c.WrapErr(err)
	}
	return c, nil
}

// past is a deadline that ends reads and writes at once.
var past = time.Unix(1, 0)

// Close closes the connection, and the descriptors from the lab.
func (c *Call) Close() {
	c.detachCtx()
	c.conn.Close()
	CloseAll(c.Files)
}

// RemoveTimeout removes the timeout of the call. With detach the context no longer ends the call
// either; then RemoveTimeout returns an error if the context has ended already.
func (c *Call) RemoveTimeout(detach bool) error {
	if detach && !c.detachCtx() {
		return context.Cause(c.ctx)
	}
	_ = c.conn.SetDeadline(time.Time{})
	// SetDeadline may have removed the deadline that the end of the context has set.
	if !detach && c.ctx.Err() != nil {
		_ = c.conn.SetDeadline(past)
	}
	return nil
}

// WrapErr converts an error of the connection to the error for a user: the lab's own error, the
// end of the context, a *NotRespondingError after the timeout, or a *NotUpError if the lab has
// closed the connection.
func (c *Call) WrapErr(err error) error {
	var failed *control.CloseError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &failed) && c.kind.DecodeError != nil:
		return c.kind.DecodeError(failed)
	case errors.As(err, &failed):
		return failed
	case errors.Is(err, os.ErrDeadlineExceeded) && c.endedByContext():
		return context.Cause(c.ctx)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &NotRespondingError{What: c.kind.What, Name: c.name, PID: c.PID}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		return c.kind.notUp(c.name) // the lab is going down
	}
	return fmt.Errorf("%s %s: %w", c.kind.What, c.name, err)
}

// endedByContext reports whether the end of the context has ended the call. In a call with a
// timeout, a deadline of the context counts as the timeout.
func (c *Call) endedByContext() bool {
	if c.hasTimeout {
		return errors.Is(c.ctx.Err(), context.Canceled)
	}
	return c.ctx.Err() != nil
}

// ReadReply returns the body of the next reply.
func (c *Call) ReadReply() ([]byte, error) {
	f, err := c.Frames.Read()
	return f.Body, c.WrapErr(err)
}

// RoundTrip sends a request, returns the body of the reply, and closes the connection. The caller
// must close c.Files, the descriptors of the answer. timeout is that of Send.
func (k *Kind) RoundTrip(ctx context.Context, name string, timeout time.Duration, request any) (body []byte, c *Call, err error) {
	c, err = k.Send(ctx, name, timeout, request)
	if err != nil {
		return nil, nil, err
	}
	defer c.conn.Close()
	defer c.detachCtx()
	body, err = c.ReadReply()
	if err != nil {
		CloseAll(c.Files)
	}
	return body, c, err
}

// downTimeout is how long a lab may take to end.
const downTimeout = 10 * time.Second

// Down sends the request that takes a lab down, and waits, for up to downTimeout, until the lab's
// process has ended.
func (k *Kind) Down(ctx context.Context, name string, request any) error {
	c, err := k.Send(ctx, name, k.ReplyTimeout, request)
	if err != nil {
		return err
	}
	defer c.Close()
	// The pidfd reports the end of the process. If the process has ended already (ESRCH), its
	// reply is still to be read.
	pidfd, openErr := unix.PidfdOpen(c.PID, 0)
	if openErr == nil {
		defer unix.Close(pidfd)
	}
	if _, err := c.ReadReply(); err != nil {
		return err
	}
	deadline := time.Now().Add(downTimeout)
	_ = c.conn.SetDeadline(deadline)
	// No second reply follows: ReadReply returns when the process exits, which closes the connection.
	var gone *NotUpError
	if _, err := c.ReadReply(); !errors.As(err, &gone) {
		return err
	}
	if errors.Is(openErr, unix.ESRCH) {
		return nil // the process had ended already
	}
	if openErr != nil {
		return fmt.Errorf("%s %s, process %d: pidfd_open: %w", k.What, name, c.PID, openErr)
	}
	return awaitExit(ctx, pidfd, deadline)
}

// awaitExit returns when the process of pidfd and all of its threads have ended. It returns an
// error at the deadline or when the context ends.
func awaitExit(ctx context.Context, pidfd int, deadline time.Time) error {
	const pollMillis = 10
	for time.Now().Before(deadline) && ctx.Err() == nil {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, pollMillis)
		if n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("the lab's process is still running after %v", downTimeout)
}
