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

// ErrHungUp is a connection that the guest ended, which it does when it goes.
var ErrHungUp = errors.New("the guest hung up")

// Command is a program to be run in a guest.
type Command struct {
	Args []string // looked for on the guest's PATH
	Env  []string // besides what every program of the guest has
	Dir  string
	// Stdin is read to its end if the program lets it; nil is nothing.
	Stdin io.Reader
	// Stdout and Stderr get what it prints, as it does; nil is nowhere. They are not
	// written to at the same time, and so may be the same.
	Stdout, Stderr io.Writer
	// Signals are passed on to the program and what it started.
	Signals <-chan os.Signal
}

// Shell is a command line for the guest's shell.
func Shell(line string) Command { return Command{Args: []string{"sh", "-c", line}} }

// Exec runs a program over conn, which it closes, and returns how it ended: its exit
// code, or 128 and the number of a signal. A program that fails is no error. When
// ctx ends, or the connection does, the program and its group are killed.
func Exec(ctx context.Context, conn net.Conn, c Command) (code int, err error) {
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	to := &frames{w: conn}
	if err := writeRequest(to, request{Op: opExec, Args: c.Args, Env: c.Env, Dir: c.Dir}); err != nil {
		return 0, because(ctx, err)
	}
	ended := make(chan struct{})
	defer close(ended)
	go to.passOn(c.Signals, ended)
	go to.feed(c.Stdin) // may outlast us, if its reader does not end
	for {
		k, payload, err := readFrame(conn)
		if err != nil {
			return 0, because(ctx, fmt.Errorf("%w while the program ran: %w", ErrHungUp, err))
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
			err = fmt.Errorf("the guest says frame %d: is it of another version?", k)
		}
		if err != nil {
			return 0, err
		}
	}
}

// Output runs a program as Exec does and returns what it printed on both its
// outputs.
func Output(ctx context.Context, conn net.Conn, c Command) (output string, code int, err error) {
	var b bytes.Buffer
	c.Stdout, c.Stderr = &b, &b
	code, err = Exec(ctx, conn, c)
	return b.String(), code, err
}

// Put writes a file of so many octets over conn, which it closes. It stands under
// its name only once it is whole.
func Put(ctx context.Context, conn net.Conn, path string, mode fs.FileMode, size int64, from io.Reader) error {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	r := request{Op: opPut, Path: path, Mode: uint32(mode.Perm()), Size: size}
	if err := writeRequest(conn, r); err != nil {
		return because(ctx, err)
	}
	// The guest may refuse at once, and then reads no more.
	answered := make(chan error, 1)
	go func() { answered <- answer(conn) }()
	sent, err := copyFrames(conn, kindData, io.LimitReader(from, size))
	if err == nil && sent < size {
		conn.Close()
		return fmt.Errorf("%s ended after %d of %d octets", path, sent, size)
	}
	if said := <-answered; said != nil {
		return because(ctx, said)
	}
	return because(ctx, err)
}

// SetDevices gives the guest's wire the RDMA devices that are named, in place of
// those that it has, over conn, which it closes.
func SetDevices(ctx context.Context, conn net.Conn, devices []Device) error {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if err := writeRequest(conn, request{Op: opDevices, Devices: devices}); err != nil {
		return because(ctx, err)
	}
	return because(ctx, answer(conn))
}

// answer waits for what came of a request.
func answer(conn net.Conn) error {
	k, payload, err := readFrame(conn)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrHungUp, err)
	case k == kindError:
		return errors.New(string(payload))
	case k != kindExit:
		return fmt.Errorf("the guest says frame %d: is it of another version?", k)
	}
	return nil
}

// because is err, or why the context ended, which explains it.
func because(ctx context.Context, err error) error {
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

// frames takes whole frames from several goroutines.
type frames struct {
	mu sync.Mutex
	w  io.Writer
}

func (f *frames) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.w.Write(b)
}

// feed sends what a program is to read.
func (f *frames) feed(from io.Reader) {
	if from != nil {
		if _, err := copyFrames(f, kindStdin, from); err != nil {
			return // whoever reads from the connection learns of it
		}
	}
	_ = writeFrame(f, kindStdin, nil)
}

func (f *frames) passOn(signals <-chan os.Signal, ended <-chan struct{}) {
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

// copyFrames sends all that can be read, in frames.
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
