package launch

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"

	"github.com/fabrictest/fabrictest/control"
)

// Errors of Conn and Group; test for them with errors.Is.
var (
	// ErrNotLaunched: no launcher started this process.
	ErrNotLaunched = errors.New("not started by a launcher")
	// ErrEnded: the rank has ended, and all its messages have been received.
	ErrEnded = errors.New("the rank has ended")
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

// Join connects to the launcher that started this process. It returns ErrNotLaunched
// if there is none, or if it has been called before. If the launcher dies or closes the
// connection, the process prints the error to stderr and exits with ExitDisconnected.
func Join() (*Conn, error) { return join(exitDisconnected) }

// join is Join with the function to call when the connection ends before Close.
func join(onDisconnect func(error)) (*Conn, error) {
	text, ok := os.LookupEnv(envControl)
	if !ok {
		return nil, ErrNotLaunched
	}
	// Child processes do not inherit the channel and must not look for it.
	if err := os.Unsetenv(envControl); err != nil {
		return nil, err
	}
	f, err := inheritedSocket(text)
	if err != nil {
		return nil, err
	}
	frames := control.New(f, control.Config{Names: kindNames, QueueBytes: rankQueueBytes})
	w, err := handshake(frames, hello{PID: os.Getpid(), Go: runtime.Version()})
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("join: %w", err)
	}
	return newConn(f, frames, w, onDisconnect), nil
}

// handshake is the rank's side of the handshake.
func handshake(c *control.Conn, h hello) (w welcome, err error) {
	if err := c.SendHello(rankProtocol, h); err != nil {
		return w, err
	}
	err = c.ReadHello(rankProtocol, &w)
	var rejected *control.CloseError
	switch {
	case errors.As(err, &rejected):
		err = fmt.Errorf("rejected by the launcher: %w", err)
	case err == nil && (w.Size < 1 || w.Rank < 0 || w.Rank >= w.Size || w.MaxMessage < 0 || w.MaxReport < 0):
		err = fmt.Errorf("%w: invalid welcome as rank %d of %d", control.ErrProtocol, w.Rank, w.Size)
	}
	return w, err
}

// inheritedSocket opens the descriptor whose number is in text.
func inheritedSocket(text string) (*os.File, error) {
	fd, err := strconv.Atoi(text)
	if err != nil || fd < 0 {
		return nil, fmt.Errorf("join: %s=%q is not the number of a descriptor", envControl, text)
	}
	if _, err := syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_TYPE); err != nil {
		return nil, fmt.Errorf("join: descriptor %d, named by %s, is no socket (%w): a program between the launcher and this one closed it",
			fd, envControl, err)
	}
	syscall.CloseOnExec(fd)
	if err := syscall.SetNonblock(fd, true); err != nil {
		return nil, fmt.Errorf("join: descriptor %d: %w", fd, err)
	}
	return os.NewFile(uintptr(fd), "control"), nil
}
