package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/lab/daemon"
)

// changeTimeout limits the wait for a change of links, which takes long in a large fabric.
const changeTimeout = time.Minute

// serverJob is the input of a lab.
type serverJob struct {
	Config
	Text string `json:"text"` // of the scenario
}

// Up starts a lab as a detached process, and returns when its fabric is up.
func Up(ctx context.Context, cfg Config) error {
	text, err := cfg.Scenario.Marshal()
	if err != nil {
		return err
	}
	return labDaemons.Start(ctx, cfg.Name, serverJob{Config: cfg, Text: string(text)})
}

// List returns the names of this user's labs. It ignores sockets that other users
// have bound under such names.
func List(ctx context.Context) (names []string, err error) { return labDaemons.List(ctx) }

// Query returns the description of a lab.
func Query(ctx context.Context, name string) (*Info, error) {
	body, c, err := labDaemons.RoundTrip(ctx, name, labDaemons.ReplyTimeout, &request{Op: opInfo})
	if err != nil {
		return nil, err
	}
	var info Info
	if err := json.Unmarshal(body, &info); err != nil {
		return nil, fmt.Errorf("lab %s sent an invalid description: %w", name, err)
	}
	info.PID = c.PID // the lab sees only its PID in its own PID namespace
	return &info, nil
}

// Down takes a lab down and returns when it has ended.
func Down(ctx context.Context, name string) error {
	return labDaemons.Down(ctx, name, &request{Op: opDown})
}

// SetLink sets links of a lab up or down. ports is a pattern of the names of their ports.
func SetLink(ctx context.Context, name, ports string, up bool) error {
	link := "down"
	if up {
		link = "up"
	}
	r := &request{Op: opSet, Host: ports, Link: link} // in opSet, Host is the pattern of ports
	_, _, err := labDaemons.RoundTrip(ctx, name, changeTimeout, r)
	return err
}

// Impair replaces the impairments of a lab's ports. ports is a pattern of their names, scenario the
// text of a scenario with the same fabric and the new impairments.
func Impair(ctx context.Context, name, ports, scenario string) error {
	_, _, err := labDaemons.RoundTrip(ctx, name, changeTimeout, &request{Op: opSet, Host: ports, Impair: scenario})
	return err
}

// drainTimeout is how long output may arrive after the program has ended.
const drainTimeout = 2 * time.Second

// Exec runs a program in a host of a lab, with the standard descriptors,
// environment and working directory of this process, and returns its exit code. If
// stdin and stdout are a terminal, the program gets a new terminal.
//
// On a terminal, cancelling the context or closing the terminal ends the call and
// the program. Otherwise signals are forwarded to the program, and the context has
// no effect once the program runs.
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
	// Catch signals before the program starts: one may arrive at once.
	signals := make(chan os.Signal, 8)
	if !r.Terminal {
		signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
		defer signal.Stop(signals)
	}
	c, err := labDaemons.Send(ctx, name, labDaemons.ReplyTimeout, r, os.Stdin, os.Stdout, os.Stderr)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	onTerminal := len(c.Files) > 0 // the lab sends the master of the program's terminal
	detachFromContext := !onTerminal
	if err := c.RemoveTimeout(detachFromContext); err != nil {
		return 0, err
	}
	if onTerminal {
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

// errorNotifier is a file that calls onError when a read fails, as it does at its end.
type errorNotifier struct {
	*os.File
	onError func()
}

// Read implements io.Reader. It calls onError if the read fails.
func (f errorNotifier) Read(b []byte) (int, error) {
	n, err := f.File.Read(b)
	if err != nil {
		f.onError()
	}
	return n, err
}

// attachTerminal connects this process's terminal with master, the program's pseudo-terminal. It
// sets this terminal to raw mode, and copies its input to master and the program's output back.
// Until done is closed, it passes on changes of the terminal's size. It calls onClosed when this
// terminal is closed. restore waits for the rest of the output, up to drainTimeout, and ends raw
// mode.
func attachTerminal(master *os.File, done <-chan struct{}, onClosed func()) (restore func(), err error) {
	restoreMode, err := makeRaw(os.Stdin)
	if err != nil {
		return nil, err
	}
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		_, _ = io.Copy(os.Stdout, master) // until no process has the terminal open
	}()
	// A raw terminal has no end-of-file key, so a read fails only if the terminal is closed. The
	// struct hides os.File.WriteTo, which does not call Read.
	readOnly := struct{ io.Reader }{errorNotifier{os.Stdin, onClosed}}
	go func() { _, _ = io.Copy(master, readOnly) }() // until this process ends
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
		case <-time.After(drainTimeout): // a background process keeps the program's terminal open
		}
		restoreMode()
	}, nil
}

// openTerminal opens a new pseudo-terminal with the given size.
func openTerminal(rows, columns uint16) (master, slave *os.File, err error) {
	m, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open a terminal: %w", err)
	}
	n, err := unix.IoctlGetInt(int(m.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(m.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		m.Close()
		return nil, nil, fmt.Errorf("open a terminal: %w", err)
	}
	resize(m, rows, columns)
	return m, slave, nil
}

// resize sets the size of a terminal.
func resize(f *os.File, rows, columns uint16) {
	_ = unix.IoctlSetWinsize(int(f.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns}) // a wrong size is harmless
}

// terminalSize returns the size of the terminal f; ok is false if f is not a terminal.
func terminalSize(f *os.File) (rows, columns uint16, ok bool) {
	w, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0, false
	}
	return w.Row, w.Col, true
}

// makeRaw sets a terminal to raw mode, with the flags of cfmakeraw(3), until restore is called.
func makeRaw(f *os.File) (restore func(), err error) {
	fd := int(f.Fd())
	old, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return nil, err
	}
	raw := *old
	raw.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	raw.Oflag &^= unix.OPOST
	raw.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	raw.Cflag = raw.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, &raw); err != nil {
		return nil, err
	}
	return func() { _ = unix.IoctlSetTermios(fd, unix.TCSETS, old) }, nil
}
