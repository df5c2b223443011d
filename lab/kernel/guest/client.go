package guest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"sync"
	"syscall"
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

// Exec runs a program over conn, which it closes, and returns its exit code, or 128
// plus the signal number. The program and its group are killed when ctx or the
// connection ends.
func Exec(ctx context.Context, conn net.Conn, c Command) (code int, err error) {
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	to := &frameWriter{w: conn}
	if err := writeRequest(to, request{Op: opExec, Args: c.Args, Env: c.Env, Dir: c.Dir}); err != nil {
		return 0, causeOf(ctx, err)
	}
	ended := make(chan struct{})
	defer close(ended)
	go to.sendSignals(c.Signals, ended)
	go to.sendStdin(c.Stdin) // may continue after Exec, until its reader ends
	for {
		k, payload, err := readFrame(conn)
		if err != nil {
			return 0, causeOf(ctx, fmt.Errorf("%w while the program ran: %w", ErrConnectionClosed, err))
		}
		switch k {
		case kindStdout:
			err = write(c.Stdout, payload)
		case kindStderr:
			err = write(c.Stderr, payload)
		case kindExit:
			return exitCode(payload)
		case kindError:
			return 0, errors.New(string(payload))
		default:
			err = fmt.Errorf("unexpected frame %d: is the guest of another version?", k)
		}
		if err != nil {
			return 0, err
		}
	}
}

// Output runs a program as Exec does and returns its output on both streams.
func Output(ctx context.Context, conn net.Conn, c Command) (output string, code int, err error) {
	var b bytes.Buffer
	c.Stdout, c.Stderr = &b, &b
	code, err = Exec(ctx, conn, c)
	return b.String(), code, err
}

// Put writes a file over conn, which it closes. The file appears under its name
// when it is complete.
func Put(ctx context.Context, conn net.Conn, path string, mode fs.FileMode, size int64, from io.Reader) error {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	r := request{Op: opPut, Path: path, Mode: uint32(mode.Perm()), Size: size}
	if err := writeRequest(conn, r); err != nil {
		return causeOf(ctx, err)
	}
	// The guest may fail at once, and then stops reading.
	result := make(chan error, 1)
	go func() { result <- readResult(conn) }()
	sent, err := copyFrames(conn, kindData, io.LimitReader(from, size))
	if err == nil && sent < size {
		conn.Close()
		return fmt.Errorf("%s ended after %d of %d bytes", path, sent, size)
	}
	if putErr := <-result; putErr != nil {
		return causeOf(ctx, putErr)
	}
	return causeOf(ctx, err)
}

// SetDevices replaces the RDMA devices of the guest over conn, which it closes.
func SetDevices(ctx context.Context, conn net.Conn, devices []Device) error {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if err := writeRequest(conn, request{Op: opDevices, Devices: devices}); err != nil {
		return causeOf(ctx, err)
	}
	return causeOf(ctx, readResult(conn))
}

// readResult reads the result of a request.
func readResult(conn net.Conn) error {
	k, payload, err := readFrame(conn)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrConnectionClosed, err)
	case k == kindError:
		return errors.New(string(payload))
	case k != kindExit:
		return fmt.Errorf("unexpected frame %d: is the guest of another version?", k)
	}
	return nil
}

// causeOf returns why the context ended, if it has, or else err.
func causeOf(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func write(w io.Writer, b []byte) error {
	if w == nil {
		return nil
	}
	_, err := w.Write(b)
	return err
}

// frameWriter writes whole frames. It is safe for concurrent use.
type frameWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (f *frameWriter) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.w.Write(b)
}

// sendStdin sends the input of a program.
func (f *frameWriter) sendStdin(from io.Reader) {
	if from != nil {
		if _, err := copyFrames(f, kindStdin, from); err != nil {
			return // the reader of the connection returns the error
		}
	}
	_ = writeFrame(f, kindStdin, nil)
}

func (f *frameWriter) sendSignals(signals <-chan os.Signal, ended <-chan struct{}) {
	for {
		select {
		case s := <-signals:
			if n, ok := s.(syscall.Signal); ok && writeFrame(f, kindSignal, []byte{byte(n)}) != nil {
				return
			}
		case <-ended:
			return
		}
	}
}

// copyFrames sends all data of a reader in frames.
func copyFrames(to io.Writer, k kind, from io.Reader) (sent int64, err error) {
	b := make([]byte, maxFrame/4)
	for {
		n, err := from.Read(b)
		if n > 0 {
			if err := writeFrame(to, k, b[:n]); err != nil {
				return sent, err
			}
			sent += int64(n)
		}
		switch {
		case errors.Is(err, io.EOF):
			return sent, nil
		case err != nil:
			return sent, err
		}
	}
}
