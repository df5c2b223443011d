package live

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

// socketPrefix returns the prefix of the abstract socket names of this user's labs.
// The at sign stands for a zero byte.
func socketPrefix() string { return fmt.Sprintf("@fabrictest/%d/", os.Geteuid()) }

// replyTimeout is how long a lab has to answer. Tests shorten it.
var replyTimeout = 10 * time.Second

// changeTimeout is the same for changes of links, which take long in a large
// fabric.
const changeTimeout = time.Minute

// otherUserError is returned if another user has bound the name.
type otherUserError struct {
	name string
	uid  uint32
}

func (e *otherUserError) Error() string {
	return fmt.Sprintf("the name %s is used by another user, %d: give another name with --name", e.name, e.uid)
}

// dial connects to a lab of the same user. A client must not send its descriptors
// and environment to another user.
func dial(ctx context.Context, name string) (conn *net.UnixConn, pid int, err error) {
	if err := CheckName(name); err != nil {
		return nil, 0, err
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", socketPrefix()+name)
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		return nil, 0, &NotUpError{Name: name, CrashLog: findCrashLog(name)}
	case errors.Is(err, unix.EAGAIN): // the backlog is full
		return nil, 0, &NotRespondingError{Name: name}
	case err != nil:
		return nil, 0, err
	}
	conn = c.(*net.UnixConn)
	cred, err := peerCred(conn)
	if err == nil && int(cred.Uid) != os.Geteuid() {
		err = &otherUserError{name, cred.Uid}
	}
	if err != nil {
		conn.Close()
		return nil, 0, err
	}
	return conn, int(cred.Pid), nil
}

// call is a request in progress.
type call struct {
	ctx        context.Context // of this call only
	name       string
	pid        int
	conn       *net.UnixConn
	frames     *control.Conn // on conn
	stopCancel func() bool   // disconnects the context
}

// clientLimits are those of frames from a lab.
var clientLimits = control.Limits{control.Reply: maxInfo, control.Pong: 0, control.Exit: 0, control.Close: control.MaxReason}

// sendRequest sends a request with descriptors. The lab must answer within wait.
func sendRequest(ctx context.Context, name string, wait time.Duration, r *request, files ...*os.File) (*call, error) {
	conn, pid, err := dial(ctx, name)
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(wait))
	c := &call{ctx: ctx, name: name, pid: pid, conn: conn, frames: control.New(conn, control.Config{Limits: clientLimits})}
	c.stopCancel = context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	if err = sendFiles(conn, files...); err == nil {
		err = c.frames.SendHello(protocol, r)
	}
	if err != nil {
		c.close()
		return nil, c.wrapErr(err)
	}
	return c, nil
}

func (c *call) close() {
	c.stopCancel()
	c.conn.Close()
}

// wrapErr converts an error of the connection.
func (c *call) wrapErr(err error) error {
	var failed *control.CloseError
	switch {
	case err == nil, errors.As(err, &failed):
		return err
	case errors.Is(err, os.ErrDeadlineExceeded) && errors.Is(c.ctx.Err(), context.Canceled):
		return context.Cause(c.ctx)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &NotRespondingError{Name: c.name, PID: c.pid}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		return &NotUpError{Name: c.name, CrashLog: findCrashLog(c.name)} // it is going down
	}
	return fmt.Errorf("lab %s: %w", c.name, err)
}

// readReply returns the body of the lab's reply.
func (c *call) readReply() ([]byte, error) {
	f, err := c.frames.Read()
	return f.Body, c.wrapErr(err)
}

// roundTrip sends a request and reads the reply.
func roundTrip(ctx context.Context, name string, wait time.Duration, r *request) (body []byte, pid int, err error) {
	c, err := sendRequest(ctx, name, wait, r)
	if err != nil {
		return nil, 0, err
	}
	defer c.close()
	body, err = c.readReply()
	return body, c.pid, err
}
