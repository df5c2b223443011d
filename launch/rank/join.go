package rank

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/fabrictest/fabrictest/launch/internal/control"
)

// Errors that methods of Conn return; test for them with errors.Is.
var (
	// ErrNotLaunched: no launcher started this process.
	ErrNotLaunched = errors.New("not started by a launcher")
	// ErrRankEnded: the other rank has ended, and all its messages have been received.
	ErrRankEnded = errors.New("the rank has ended")
	// ErrTimeout: the timeout of a blocking call has expired.
	ErrTimeout = errors.New("timed out")
	// ErrDisconnected: the launcher has died or has closed the connection.
	ErrDisconnected = errors.New("the launcher is gone")
	// ErrClosed: Close has been called.
	ErrClosed = errors.New("the connection is closed")
	// ErrTooBig: a size limit is exceeded.
	ErrTooBig = errors.New("too big")
)

// ExitDisconnected is the exit code of a process that lost its launcher.
const ExitDisconnected = 125

// joinTimeout limits the wait for the launcher's welcome.
const joinTimeout = 30 * time.Second

// Options configure JoinWith.
type Options struct {
	// OnDisconnect is called once if the launcher dies or closes the connection. By
	// default the process prints the error to stderr and exits with
	// ExitDisconnected.
	OnDisconnect func(error)
}

// Join connects to the launcher that started this process. It returns ErrNotLaunched
// if there is none, or if it has been called before.
func Join() (*Conn, error) { return JoinWith(Options{}) }

// JoinWith is Join with options.
func JoinWith(o Options) (*Conn, error) {
	text, ok := os.LookupEnv(control.EnvControl)
	if !ok {
		return nil, ErrNotLaunched
	}
	// Child processes do not inherit the channel and must not look for it.
	if err := os.Unsetenv(control.EnvControl); err != nil {
		return nil, err
	}
	f, err := inheritedSocket(text)
	if err != nil {
		return nil, err
	}
	if err := f.SetReadDeadline(time.Now().Add(joinTimeout)); err != nil {
		f.Close()
		return nil, fmt.Errorf("join: %w", err)
	}
	terms, job, err := control.Handshake(f, control.HelloBody{PID: os.Getpid(), Go: runtime.Version()})
	if err == nil {
		err = f.SetReadDeadline(time.Time{})
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("join: %w", err)
	}
	return newConn(f, terms, job, o), nil
}

// inheritedSocket opens the descriptor whose number is in text.
func inheritedSocket(text string) (*os.File, error) {
	fd, err := strconv.Atoi(text)
	if err != nil || fd < 0 {
		return nil, fmt.Errorf("join: %s=%q is not the number of a descriptor", control.EnvControl, text)
	}
	if _, err := syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_TYPE); err != nil {
		return nil, fmt.Errorf("join: descriptor %d, named by %s, is no socket (%w): a program between the launcher and this one closed it",
			fd, control.EnvControl, err)
	}
	syscall.CloseOnExec(fd)
	if err := syscall.SetNonblock(fd, true); err != nil {
		return nil, fmt.Errorf("join: descriptor %d: %w", fd, err)
	}
	return os.NewFile(uintptr(fd), "control"), nil
}
