//go:build unix

package control

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// maxChunk is the largest body of a frame of input or output.
const maxChunk = 64 << 10

// outputTimeout is how long output is read after a program's end: its background
// processes may keep it open.
const outputTimeout = 2 * time.Second

// ProgramLimits are the limits of ServeProgram, and ProgramClientLimits of AwaitExit.
var (
	ProgramLimits       = Limits{Stdin: maxChunk, Signal: 0, Close: MaxReason}
	ProgramClientLimits = Limits{Stdout: maxChunk, Stderr: maxChunk, Pong: 0, Exit: 0, Close: MaxReason}
)

// Program is a process group that runs for a client.
type Program struct {
	PID    int                       // of the leader of the group
	Ended  <-chan syscall.WaitStatus // of the leader
	Stdin  io.WriteCloser            // nil if frames carry no input
	Stdout io.ReadCloser             // nil if frames carry no output
	Stderr io.ReadCloser
	// HangupTimeout is the time from SIGHUP, which the program gets when the client
	// disconnects, to SIGKILL. If it is 0, the program gets SIGKILL only.
	HangupTimeout time.Duration
}

// Wait returns a channel that gets the wait status of a started process.
func Wait(cmd *exec.Cmd) <-chan syscall.WaitStatus {
	ended := make(chan syscall.WaitStatus, 1)
	go func() {
		_ = cmd.Wait() // ProcessState has the result
		ended <- cmd.ProcessState.Sys().(syscall.WaitStatus)
	}()
	return ended
}

// ExitCode returns the exit code as a shell does: 128 plus the signal number for a killed process.
func ExitCode(s syscall.WaitStatus) int {
	if s.Signaled() {
		return 128 + int(s.Signal())
	}
	return s.ExitStatus()
}

// ServeProgram sends the output of a program, if p.Stdout is set, to the client, and forwards the
// client's input and signals, until the program ends. It kills the program if the client
// disconnects; connected is false then. The caller sends the exit code and closes the connection.
func (c *Conn) ServeProgram(p *Program) (code int, connected bool) {
	var outputs sync.WaitGroup
	if p.Stdout != nil {
		outputs.Go(func() { _, _ = c.CopyFrom(Stdout, p.Stdout) })
		outputs.Go(func() { _, _ = c.CopyFrom(Stderr, p.Stderr) })
	}
	disconnected := make(chan struct{})
	go func() {
		defer close(disconnected)
		_ = c.Serve(func(f Frame) error { return c.handleClientFrame(p, f) })
	}()
	var status syscall.WaitStatus
	select {
	case status = <-p.Ended:
	case <-disconnected:
		return ExitCode(p.hangUp()), false
	}
	outputSent := make(chan struct{})
	go func() { outputs.Wait(); close(outputSent) }()
	select {
	case <-outputSent:
	case <-time.After(outputTimeout): // a background process keeps the output open
		p.Stdout.Close()
		p.Stderr.Close()
		<-outputSent
	}
	return ExitCode(status), true
}

// handleClientFrame forwards a signal or input of the client to the program. It answers a signal
// with a Pong. Empty input is the end of the input; input without p.Stdin is ErrProtocol.
func (c *Conn) handleClientFrame(p *Program, f Frame) error {
	switch {
	case f.Kind == Signal:
		_ = syscall.Kill(-p.PID, syscall.Signal(f.Num)) // the program may have ended
		return c.Write(Frame{Kind: Pong, Num: f.Num})
	case p.Stdin == nil:
		return fmt.Errorf("%w: unexpected frame: %v", ErrProtocol, f.Kind)
	case len(f.Body) == 0:
		p.Stdin.Close()
	default:
		if _, err := p.Stdin.Write(f.Body); err != nil {
			p.Stdin.Close() // the program does not read
		}
	}
	return nil
}

// hangUp ends a program whose client disconnected, and returns its status. If HangupTimeout is set,
// it sends SIGHUP, which a shell forwards to its jobs, and SIGCONT, which stopped processes need.
// If the program does not end within HangupTimeout, or if that is 0, it sends SIGKILL.
func (p *Program) hangUp() syscall.WaitStatus {
	if p.HangupTimeout > 0 {
		_ = syscall.Kill(-p.PID, syscall.SIGHUP)
		_ = syscall.Kill(-p.PID, syscall.SIGCONT)
		select {
		case s := <-p.Ended:
			return s
		case <-time.After(p.HangupTimeout):
		}
	}
	_ = syscall.Kill(-p.PID, syscall.SIGKILL)
	return <-p.Ended
}

// CopyFrom sends data in frames of kind k until EOF, and returns the number of bytes sent.
func (c *Conn) CopyFrom(k Kind, from io.Reader) (sent int64, err error) {
	b := make([]byte, maxChunk)
	for {
		n, err := from.Read(b)
		if n > 0 {
			if err := c.Write(Frame{Kind: k, Body: b[:n]}); err != nil {
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

// ProgramClient is the client's side of a program.
type ProgramClient struct {
	// Stdout and Stderr receive output; nil discards it.
	Stdout, Stderr io.Writer
	// Signals are forwarded to the program.
	Signals <-chan os.Signal
	// SignalTimeout limits the time in which the other end answers a signal; 0 for none.
	SignalTimeout time.Duration
}

// OutputError is an error of Stdout or Stderr of a ProgramClient.
type OutputError struct{ Err error }

func (e *OutputError) Error() string { return "write output: " + e.Err.Error() }

func (e *OutputError) Unwrap() error { return e.Err }

// AwaitExit is the client of ServeProgram: it writes the program's output to p, forwards
// signals, and returns the exit code.
func (c *Conn) AwaitExit(p *ProgramClient) (code int, err error) {
	ended := make(chan struct{})
	defer close(ended)
	go c.forwardSignals(p, ended)
	for {
		f, err := c.Read()
		if err != nil {
			return 0, err
		}
		var to io.Writer
		switch f.Kind {
		case Exit:
			return int(f.Num), nil
		case Stdout:
			to = p.Stdout
		case Stderr:
			to = p.Stderr
		case Pong:
			if p.SignalTimeout > 0 {
				_ = c.stream.SetReadDeadline(time.Time{}) // a signal was answered
			}
		}
		if to != nil {
			if _, err := to.Write(f.Body); err != nil {
				return 0, &OutputError{err}
			}
		}
	}
}

// forwardSignals sends a Signal frame for each of p.Signals until ended is closed. If the
// other end does not answer within SignalTimeout, Read of the connection fails.
func (c *Conn) forwardSignals(p *ProgramClient, ended <-chan struct{}) {
	for {
		select {
		case s := <-p.Signals:
			if p.SignalTimeout > 0 {
				_ = c.stream.SetReadDeadline(time.Now().Add(p.SignalTimeout))
			}
			if n, ok := s.(syscall.Signal); ok && c.Write(Frame{Kind: Signal, Num: uint64(n)}) != nil {
				return // the reader of the connection returns the error
			}
		case <-ended:
			return
		}
	}
}
