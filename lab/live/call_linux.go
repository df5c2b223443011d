package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
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
	dec        *json.Decoder
	stopCancel func() bool // disconnects the context
}

// sendRequest sends a request with descriptors. The lab must answer within wait.
func sendRequest(ctx context.Context, name string, wait time.Duration, r *request, files ...*os.File) (*call, error) {
	conn, pid, err := dial(ctx, name)
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(wait))
	c := &call{ctx: ctx, name: name, pid: pid, conn: conn, dec: json.NewDecoder(conn)}
	c.stopCancel = context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	if err = sendFiles(conn, files...); err == nil {
		err = json.NewEncoder(conn).Encode(r)
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
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded) && errors.Is(c.ctx.Err(), context.Canceled):
		return context.Cause(c.ctx)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &NotRespondingError{Name: c.name, PID: c.pid}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		return &NotUpError{Name: c.name, CrashLog: findCrashLog(c.name)} // it is going down
	}
	return fmt.Errorf("lab %s: %w", c.name, err)
}

func (c *call) readResponse() (*response, error) {
	var a response
	if err := c.dec.Decode(&a); err != nil {
		return nil, c.wrapErr(err)
	}
	if a.Error != "" {
		return nil, errors.New(a.Error)
	}
	return &a, nil
}

// roundTrip sends a request and reads one response.
func roundTrip(ctx context.Context, name string, wait time.Duration, r *request) (*response, *call, error) {
	c, err := sendRequest(ctx, name, wait, r)
	if err != nil {
		return nil, nil, err
	}
	defer c.close()
	a, err := c.readResponse()
	return a, c, err
}
