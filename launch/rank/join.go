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

// What the methods of a Conn return, possibly wrapped.
var (
	// ErrNotLaunched: no launcher started this process.
	ErrNotLaunched = errors.New("not started by a launcher")
	// ErrGone: the rank has ended, and no message of its is left.
	ErrRankEnded = errors.New("the rank has ended")
	// ErrTimeout: the time given to a waiting call has passed.
	ErrTimeout = errors.New("timed out")
	// ErrLost: the launcher has died, or has cut this rank off.
	ErrDisconnected = errors.New("the launcher is gone")
	// ErrClosed: Close has been called.
	ErrClosed = errors.New("the connection is closed")
	// ErrTooBig: the message exceeds a limit that the launcher set.
	ErrTooBig = errors.New("too big")
)

// ExitLost is the exit code of a process that ended because its launcher did.
const ExitDisconnected = 125

// helloPatience is how long the launcher may take to answer. It does so as soon
// as it sees the greeting.
const helloPatience = 30 * time.Second

// Options are for programs that want something else than the usual.
type Options struct {
	// OnLost is called once if the launcher dies or cuts this rank off. Without
	// it the process says so on its standard error and exits with ExitLost: a
	// rank without a launcher serves nobody, and must not outlive it.
	OnDisconnect func(error)
}

// Join connects to the launcher that started this process. It returns
// ErrNotLaunched where there is none, and also when it is called a second time.
func Join() (*Conn, error) { return JoinWith(Options{}) }

// JoinWith is Join with options.
func JoinWith(o Options) (*Conn, error) {
	text, ok := os.LookupEnv(control.EnvControl)
	if !ok {
		return nil, ErrNotLaunched
	}
	// What this process starts in turn does not inherit the channel, and must not
	// look for it.
	if err := os.Unsetenv(control.EnvControl); err != nil {
		return nil, err
	}
	f, err := inherited(text)
	if err != nil {
		return nil, err
	}
	if err := f.SetReadDeadline(time.Now().Add(helloPatience)); err != nil {
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

// inherited opens the descriptor that the launcher passed on.
func inherited(text string) (*os.File, error) {
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
