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

// prefix is what the sockets of this user's labs begin with. Abstract names leave
// nothing behind; the at sign stands for their first byte, which is 0.
func prefix() string { return fmt.Sprintf("@fabrictest/%d/", os.Geteuid()) }

// How long a lab has to answer: on a busy machine that takes longer than it does.
// What takes time by its nature, as a change to all cables of a large fabric does,
// has more. (Some tests are less patient.)
var promptly = 10 * time.Second

const patiently = time.Minute

// foreignError is a name that somebody else took.
type foreignError struct {
	name string
	uid  uint32
}

func (e *foreignError) Error() string {
	return fmt.Sprintf("the name %s is held by another user, %d, whom nothing was told: give another name with --name", e.name, e.uid)
}

// dial connects to a lab of our own: anybody can listen at its name, and would
// get our descriptors and our environment.
func dial(ctx context.Context, name string) (conn *net.UnixConn, pid int, err error) {
	if err := CheckName(name); err != nil {
		return nil, 0, err
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", prefix()+name)
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		return nil, 0, &NotUpError{Name: name, Trace: crashTrace(name)}
	case errors.Is(err, unix.EAGAIN): // so many wait that no more can
		return nil, 0, &SilentError{Name: name}
	case err != nil:
		return nil, 0, err
	}
	conn = c.(*net.UnixConn)
	who, err := peer(conn)
	if err == nil && int(who.Uid) != os.Geteuid() {
		err = &foreignError{name, who.Uid}
	}
	if err != nil {
		conn.Close()
		return nil, 0, err
	}
	return conn, int(who.Pid), nil
}

// call is a request under way.
type call struct {
	ctx  context.Context // of this call only
	name string
	pid  int
	conn *net.UnixConn
	in   *json.Decoder
	stop func() bool // ends the context's say
}

// ask sends a request with descriptors. The lab has so long to answer.
func ask(ctx context.Context, name string, wait time.Duration, r *request, files ...*os.File) (*call, error) {
	conn, pid, err := dial(ctx, name)
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(wait))
	c := &call{ctx: ctx, name: name, pid: pid, conn: conn, in: json.NewDecoder(conn)}
	c.stop = context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	if err = sendFiles(conn, files...); err == nil {
		err = json.NewEncoder(conn).Encode(r)
	}
	if err != nil {
		c.close()
		return nil, c.explain(err)
	}
	return c, nil
}

func (c *call) close() {
	c.stop()
	c.conn.Close()
}

// explain says what an error of the connection means.
func (c *call) explain(err error) error {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded) && errors.Is(c.ctx.Err(), context.Canceled):
		return context.Cause(c.ctx)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &SilentError{Name: c.name, PID: c.pid}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		return &NotUpError{Name: c.name, Trace: crashTrace(c.name)} // it goes down just now
	}
	return fmt.Errorf("lab %s: %w", c.name, err)
}

// answer takes one.
func (c *call) answer() (*answer, error) {
	var a answer
	if err := c.in.Decode(&a); err != nil {
		return nil, c.explain(err)
	}
	if a.Error != "" {
		return nil, errors.New(a.Error)
	}
	return &a, nil
}

// one sends a request and takes its one answer.
func one(ctx context.Context, name string, wait time.Duration, r *request) (*answer, *call, error) {
	c, err := ask(ctx, name, wait, r)
	if err != nil {
		return nil, nil, err
	}
	defer c.close()
	a, err := c.answer()
	return a, c, err
}
