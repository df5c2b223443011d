package live

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/fabrictest/fabrictest/lab/daemon"
)

// drainTimeout is how long output may arrive after the program has ended.
const drainTimeout = 2 * time.Second

// Exec runs a program in a host of a lab, with the standard descriptors,
// environment and working directory of this process, and returns its exit code. If
// stdin and stdout are a terminal, the program gets a new terminal.
//
// On a terminal, cancelling the context or closing the terminal ends the call and
// the program. Otherwise signals are forwarded to the program, and the context
// matters only until it runs.
func Exec(ctx context.Context, name, host string, args []string) (code int, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := &request{Op: opExec, Host: host}
	if r.Program, err = daemon.NewProgram(args); err != nil {
		return 0, err
	}
	r.Rows, r.Columns, r.Terminal = terminalSize(os.Stdin)
	if _, _, ok := terminalSize(os.Stdout); !ok {
		r.Terminal = false
	}
	// Before the program starts: a signal may arrive at once.
	signals := make(chan os.Signal, 8)
	if !r.Terminal {
		signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
		defer signal.Stop(signals)
	}
	c, err := kind.Send(ctx, name, kind.ReplyTimeout, r, os.Stdin, os.Stdout, os.Stderr)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	if err := c.WaitForever(len(c.Files) == 0); err != nil {
		return 0, err
	}
	if len(c.Files) > 0 {
		done := make(chan struct{})
		defer close(done)
		restore, err := attachTerminal(c.Files[0], done, func() { cancel(errors.New("the terminal was closed")) })
		if err != nil {
			return 0, err
		}
		defer restore()
	}
	return c.AwaitExit(signals)
}

// eofNotifier calls onError when a read fails.
type eofNotifier struct {
	*os.File
	onError func()
}

func (w eofNotifier) Read(b []byte) (int, error) {
	n, err := w.File.Read(b)
	if err != nil {
		w.onError()
	}
	return n, err
}

// attachTerminal connects this terminal to the program's. It calls closed when a
// read of this terminal fails, because a raw terminal has no end-of-file key.
func attachTerminal(master *os.File, done <-chan struct{}, closed func()) (restore func(), err error) {
	restoreMode, err := makeRaw(os.Stdin)
	if err != nil {
		return nil, err
	}
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		_, _ = io.Copy(os.Stdout, master) // until no process has the terminal open
	}()
	go func() { _, _ = io.Copy(master, struct{ io.Reader }{eofNotifier{os.Stdin, closed}}) }() // until this process ends
	resizes := make(chan os.Signal, 1)
	signal.Notify(resizes, syscall.SIGWINCH)
	go func() {
		defer signal.Stop(resizes)
		for {
			select {
			case <-resizes:
				if rows, columns, ok := terminalSize(os.Stdin); ok {
					resize(master, rows, columns)
				}
			case <-done:
				return
			}
		}
	}()
	return func() {
		select {
		case <-copied:
		case <-time.After(drainTimeout): // a background process keeps it open
		}
		restoreMode()
	}, nil
}
