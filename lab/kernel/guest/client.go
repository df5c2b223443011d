package guest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"

	"github.com/fabrictest/fabrictest/control"
)

// ErrConnectionClosed is returned if the guest closes the connection, as it does
// when it ends.
var ErrConnectionClosed = errors.New("the guest closed the connection")

// Command is a program to run in a guest.
type Command struct {
	Args []string // found by the guest's PATH
	Env  []string // added to the guest's environment
	Dir  string
	// Stdin is the input of the program; nil is empty.
	Stdin io.Reader
	// Stdout and Stderr receive its output; nil discards it. They are not written
	// concurrently, and may be the same.
	Stdout, Stderr io.Writer
	// Signals are sent to the process group of the program.
	Signals <-chan os.Signal
}

// Shell returns a command for the guest's shell.
func Shell(line string) Command { return Command{Args: []string{"sh", "-c", line}} }

// Exec runs a program in the guest that conn is connected to, and closes conn. It returns the
// exit code, or 128 plus the number of the signal that ended the program. The program and its
// group are killed when ctx or the connection ends.
func Exec(ctx context.Context, conn net.Conn, c Command) (code int, err error) {
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	frames, err := send(conn, request{Op: opExec, Args: c.Args, Env: c.Env, Dir: c.Dir})
	if err != nil {
		return 0, causeOf(ctx, err)
	}
	go func() { // may continue after Exec, until Stdin ends
		if c.Stdin != nil {
			_, _ = frames.CopyFrom(control.Stdin, c.Stdin)
		}
		_ = frames.Write(control.Frame{Kind: control.Stdin}) // end of file; awaitExit returns the error of the connection
	}()
	code, err = awaitExit(frames, control.ProgramClient{Stdout: c.Stdout, Stderr: c.Stderr, Signals: c.Signals})
	return code, causeOf(ctx, err)
}

// Output runs a program as Exec does, and returns its standard output and error, interleaved.
func Output(ctx context.Context, conn net.Conn, c Command) (output string, code int, err error) {
	var b bytes.Buffer
	c.Stdout, c.Stderr = &b, &b
	code, err = Exec(ctx, conn, c)
	return b.String(), code, err
}

// Put writes size bytes from a reader to a file in the guest that conn is connected to, and
// closes conn. The file appears under its path when it is complete.
func Put(ctx context.Context, conn net.Conn, path string, mode fs.FileMode, size int64, from io.Reader) error {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	frames, err := send(conn, request{Op: opPut, Path: path, Mode: uint32(mode.Perm()), Size: size})
	if err != nil {
		return causeOf(ctx, err)
	}
	// The guest may fail at once, and then stops reading.
	result := make(chan error, 1)
	go func() {
		_, err := awaitExit(frames, control.ProgramClient{})
		result <- err
	}()
	sent, err := frames.CopyFrom(control.Stdin, io.LimitReader(from, size))
	if err == nil && sent < size {
		conn.Close()
		return fmt.Errorf("put %s: the source ended after %d of %d bytes", path, sent, size)
	}
	if putErr := <-result; putErr != nil {
		return causeOf(ctx, putErr)
	}
	return causeOf(ctx, err)
}

// SetDevices replaces the RDMA devices of the guest that conn is connected to, and closes conn.
func SetDevices(ctx context.Context, conn net.Conn, devices []Device) error {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	frames, err := send(conn, request{Op: opDevices, Devices: devices})
	if err == nil {
		_, err = awaitExit(frames, control.ProgramClient{})
	}
	return causeOf(ctx, err)
}

// awaitExit serves the streams of p until the guest ends the request, and returns the exit code.
// An error of the connection itself is an ErrConnectionClosed.
func awaitExit(c *control.Conn, p control.ProgramClient) (code int, err error) {
	code, err = c.AwaitExit(&p)
	var refused *control.CloseError
	var output *control.OutputError
	switch {
	case err == nil, errors.As(err, &refused), errors.As(err, &output), errors.Is(err, control.ErrProtocol):
		return code, err
	}
	return 0, fmt.Errorf("%w: %w", ErrConnectionClosed, err)
}

// causeOf returns err, or the cause if err is not nil because the context has ended.
func causeOf(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// Port is the TCP port of a guest's server, on its control link.
const Port = 2323

// op is the kind of a request.
type op string

const (
	opExec    op = "exec"
	opPut     op = "put"
	opDevices op = "devices"
)

// request is the hello of a client. The guest answers with an Exit frame, or with a Close
// frame if the request failed. Input of a program and the content of a file are Stdin
// frames.
type request struct {
	Op op `json:"op"`
	// For opExec:
	Args []string `json:"args,omitempty"`
	Env  []string `json:"env,omitempty"` // added to the guest's environment
	Dir  string   `json:"dir,omitempty"`
	// For opPut:
	Path string `json:"path,omitempty"`
	Mode uint32 `json:"mode,omitempty"`
	Size int64  `json:"size,omitempty"`
	// For opDevices:
	Devices []Device `json:"devices,omitempty"`
}

const (
	version    = 1
	maxRequest = 256 << 10
)

// protocol has the parameters of the hello that a client sends and a guest reads.
var protocol = control.Protocol{Version: version, Us: "the guest", Them: "the client", MaxHello: maxRequest}

// send sends a request, and returns the connection for the frames that follow.
func send(conn net.Conn, r request) (*control.Conn, error) {
	b, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	if len(b) > maxRequest {
		return nil, fmt.Errorf("arguments and environment have %d bytes, more than the limit of %d", len(b), maxRequest)
	}
	c := control.New(conn, control.Config{Limits: control.ProgramClientLimits})
	return c, c.SendHello(protocol, json.RawMessage(b))
}
