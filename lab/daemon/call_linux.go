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

// Socket returns the address of a lab. The at sign stands for a zero byte.
func (k *Kind) Socket(name string) string {
	return fmt.Sprintf("@%s/%d/%s", k.Prefix, os.Geteuid(), name)
}

// otherUserError is returned if another user has bound the name.
type otherUserError struct {
	name, flag string
	uid        uint32
}

func (e *otherUserError) Error() string {
	return fmt.Sprintf("the name %s is used by another user, %d: give another name with %s", e.name, e.uid, e.flag)
}

// dial connects to a lab of the same user. A client must not send its descriptors
// and environment to another user.
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

// Ping returns an error if there is no lab of the name.
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
	limited    bool // in time
	conn       *net.UnixConn
	stopCancel func() bool // disconnects the context
}

// clientLimits are those of frames from a lab.
var clientLimits = control.Limits{control.Reply: maxReply, control.Pong: 0, control.Exit: 0, control.Close: control.MaxReason}

// Send sends a request with descriptors. The lab must answer within wait, unless that is
// 0. The answer is a byte that carries descriptors, and frames.
func (k *Kind) Send(ctx context.Context, name string, wait time.Duration, request any, files ...*os.File) (*Call, error) {
	conn, pid, err := k.dial(ctx, name)
	if err != nil {
		return nil, err
	}
	if wait > 0 {
		_ = conn.SetDeadline(time.Now().Add(wait))
	}
	c := &Call{
		PID: pid, Frames: control.New(conn, control.Config{Limits: clientLimits}),
		kind: k, ctx: ctx, name: name, limited: wait > 0, conn: conn,
	}
	c.stopCancel = context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
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

// Close closes the connection, and the descriptors from the lab.
func (c *Call) Close() {
	c.stopCancel()
	c.conn.Close()
	CloseAll(c.Files)
}

// WaitForever removes the time limit, and detaches the context if detach is set. It
// returns an error if the context has ended before.
func (c *Call) WaitForever(detach bool) error {
	if detach && !c.stopCancel() {
		return context.Cause(c.ctx)
	}
	_ = c.conn.SetDeadline(time.Time{})
	if !detach && c.ctx.Err() != nil { // it ended before the line above
		_ = c.conn.SetDeadline(time.Unix(1, 0))
	}
	return nil
}

// WrapErr converts an error of the connection.
func (c *Call) WrapErr(err error) error {
	var failed *control.CloseError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &failed) && c.kind.DecodeError != nil:
		return c.kind.DecodeError(failed)
	case errors.As(err, &failed):
		return failed
	case errors.Is(err, os.ErrDeadlineExceeded) && (errors.Is(c.ctx.Err(), context.Canceled) || !c.limited && c.ctx.Err() != nil):
		return context.Cause(c.ctx)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &NotRespondingError{What: c.kind.What, Name: c.name, PID: c.PID}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		return c.kind.notUp(c.name) // it is going down
	}
	return fmt.Errorf("%s %s: %w", c.kind.What, c.name, err)
}

// ReadReply returns the body of the next reply.
func (c *Call) ReadReply() ([]byte, error) {
	f, err := c.Frames.Read()
	return f.Body, c.WrapErr(err)
}

// RoundTrip sends a request and reads the reply. The caller owns the descriptors that
// came with it.
func (k *Kind) RoundTrip(ctx context.Context, name string, wait time.Duration, request any) (body []byte, c *Call, err error) {
	c, err = k.Send(ctx, name, wait, request)
	if err != nil {
		return nil, nil, err
	}
	defer c.conn.Close()
	defer c.stopCancel()
	body, err = c.ReadReply()
	if err != nil {
		CloseAll(c.Files)
	}
	return body, c, err
}

// downTimeout is how long a lab may take to end.
const downTimeout = 10 * time.Second

// Down sends a request at which a lab ends, and returns when it has ended.
func (k *Kind) Down(ctx context.Context, name string, request any) error {
	c, err := k.Send(ctx, name, k.ReplyTimeout, request)
	if err != nil {
		return err
	}
	defer c.Close()
	// The lab may have ended by now: its reply is still in the socket.
	pidfd, openErr := unix.PidfdOpen(c.PID, 0)
	if openErr == nil {
		defer unix.Close(pidfd)
	}
	if _, err := c.ReadReply(); err != nil {
		return err
	}
	deadline := time.Now().Add(downTimeout)
	_ = c.conn.SetDeadline(deadline)
	var gone *NotUpError
	if _, err := c.ReadReply(); !errors.As(err, &gone) { // the connection closes while the process exits
		return err
	}
	if openErr != nil {
		if errors.Is(openErr, unix.ESRCH) {
			return nil
		}
		return fmt.Errorf("%s %s, process %d: pidfd_open: %w", k.What, name, c.PID, openErr)
	}
	return awaitExit(ctx, pidfd, deadline)
}

// awaitExit returns when a process and all of its threads have ended.
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
	return fmt.Errorf("the lab's process is still there after %v", downTimeout)
}
