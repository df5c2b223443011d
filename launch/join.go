package launch

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/fabrictest/fabrictest/control"
)

// Errors of Conn and Group; test for them with errors.Is.
var (
	// ErrNotLaunched: no launcher started this process.
	ErrNotLaunched = errors.New("not started by a launcher")
	// ErrEnded: the rank has ended. Recv returns it when all its messages have been received.
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
func Join() (*Conn, error) { return join(exitOnDisconnect) }

// exitOnDisconnect ends the process, which has lost its launcher.
func exitOnDisconnect(err error) {
	fmt.Fprintf(os.Stderr, "control channel: %v; exiting\n", err)
	os.Exit(ExitDisconnected)
}

// join does the work of Join. onDisconnect is called when the connection ends before Close.
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
	return joinOn(f, onDisconnect)
}

// joinOn does the work of join on a control channel, which it closes after an error.
func joinOn(channel control.Stream, onDisconnect func(error)) (*Conn, error) {
	frames := control.New(channel, control.Config{Names: kindNames, QueueBytes: rankQueueBytes})
	w, err := handshake(frames, hello{PID: os.Getpid(), Go: runtime.Version()})
	if err != nil {
		channel.Close()
		return nil, fmt.Errorf("join: %w", err)
	}
	return newConn(channel, frames, w, onDisconnect), nil
}

// handshake sends the rank's hello, and returns the launcher's welcome with rank, size and limits.
func handshake(c *control.Conn, h hello) (w welcome, err error) {
	if err := c.SendHello(rankProtocol, h); err != nil {
		return w, err
	}
	err = c.ReadHello(rankProtocol, &w)
	var rejected *control.CloseError
	switch {
	case errors.As(err, &rejected):
		err = fmt.Errorf("rejected by the launcher: %w", err)
	case err == nil && (w.Size < 1 || w.Rank < 0 || w.Rank >= w.Size || w.MaxMessage < 0 || w.MaxReport < 0 || !w.hasValidHosts()):
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

// Environment variables of a rank.
const (
	envControl = "FABRICTEST_CONTROL" // number of the inherited descriptor
	envRank    = "FABRICTEST_RANK"
	envSize    = "FABRICTEST_SIZE"
	envHost    = "FABRICTEST_HOST"
	// envGroup is a unique ID that the processes of a group and their children
	// inherit. The launcher uses it to find processes that left their process group.
	envGroup = "FABRICTEST_GROUP"
)

// version is that of the protocol.
const version = 3

// joinTimeout limits the wait for the launcher's welcome.
const joinTimeout = 30 * time.Second

// The protocol as the launcher and as a rank see it. A rank sends its hello first, and
// the launcher answers with a welcome. The last frame of a rank is a Close with an error
// or nothing, and the launcher answers with a Close.
var (
	launcherProtocol = control.Protocol{Version: version, Us: "the launcher", Them: "the rank", MaxHello: 4 << 10}
	rankProtocol     = control.Protocol{
		Version: version, Us: "the rank", Them: "the launcher", MaxHello: 2 * maxJob, Timeout: joinTimeout,
	}
)

// hello is the first message of a rank.
type hello struct {
	PID int    `json:"pid"`
	Go  string `json:"go,omitempty"` // runtime.Version; empty if not a Go program
}

// welcome is the launcher's answer.
type welcome struct {
	Rank       int    `json:"rank"`
	Size       int    `json:"size"`
	Host       string `json:"host"`
	MaxMessage int    `json:"max_message"`
	MaxReport  int    `json:"max_report"`
	Job        []byte `json:"job"`

	// For a proxy, which is rank Rank of Size proxies: the number of ranks on each host, and the time
	// without data from the launcher after which the proxy ends.
	Hosts       []int         `json:"hosts,omitempty"`
	IdleTimeout time.Duration `json:"idle_timeout,omitempty"`
}

// Frames of the protocol besides Ping, Pong, Reply and Close of package control.
const (
	// kindData is a message between ranks. Num is the destination in frames to the
	// launcher and the source in frames from the launcher.
	kindData = control.FirstProtocolKind + iota

	// Frames from a rank:
	kindBarrier // the rank entered barrier Num, 1 for the first
	kindMark    // text of a Marked event
	kindSample  // JSON of a Sampled event
	kindReport  // the result; at most one

	// Frames from the launcher:
	kindBarrierDone // all ranks entered barrier Num
	kindRankEnded   // rank Num has ended; no more messages of it will follow
	kindDump        // a call; the reply is the state of the rank
	kindCommand     // a call; the reply is an error, empty on success

	// Frames from and to a proxy, besides those above:
	kindEvent // from the proxy: an event of one of its ranks, as JSON (rankEvent); lines are Stdout and Stderr frames, Num is the rank
	kindStop  // to the proxy: stop the ranks; Num is 1 if a time limit is the reason
)

// kindNames are the names of these kinds.
var kindNames = []string{"message", "barrier", "mark", "sample", "report", "barrier done", "rank ended", "dump", "command", "event", "stop"}

// Maximum sizes of bodies that are not configurable.
const (
	maxMark    = 4 << 10
	maxSample  = 64 << 10
	maxDump    = 256 << 10
	maxCommand = 64 << 10
	maxReason  = control.MaxReason
	maxJob     = 64 << 20
	// maxEvent is enough for a sample and its escaped characters.
	maxEvent = 8 * maxSample
)

// rankLimits returns the longest body of each kind of frame that a rank may send.
func (w *welcome) rankLimits() control.Limits {
	l := control.Limits{
		control.Pong: 0, control.Reply: maxDump, control.Close: maxReason,
		kindData: w.MaxMessage, kindBarrier: 0, kindMark: maxMark, kindSample: maxSample, kindReport: w.MaxReport,
	}
	if w.Hosts != nil {
		l[control.Stdout], l[control.Stderr], l[kindEvent] = maxLine, maxLine, maxEvent
	}
	return l
}

// launcherLimits returns the longest body of each kind of frame that the launcher may send.
func (w *welcome) launcherLimits() control.Limits {
	l := control.Limits{
		control.Ping: 0, control.Close: maxReason,
		kindData: w.MaxMessage, kindBarrierDone: 0, kindRankEnded: 0, kindDump: 0, kindCommand: maxCommand,
	}
	if w.Hosts != nil {
		l[kindStop] = 0
	}
	return l
}
