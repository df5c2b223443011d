package launch

import (
	"cmp"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// State is the final state of a rank.
type State string

// States.
const (
	Finished State = "finished" // called Close(nil) and exited with 0
	Failed   State = "failed"   // called Close(err), or violated the control protocol
	Exited   State = "exited"   // exited with another code than 0, or without Close
	Crashed  State = "crashed"  // ended by a signal that the launcher did not send, or by a Go panic
	Hung     State = "hung"     // did not answer heartbeats, or did not exit
	Killed   State = "killed"   // ended by Kill
	Stopped  State = "stopped"  // ended by the launcher when it ended the group
)

// OK reports whether a rank in this state does not count as failed.
func (s State) OK() bool { return s == Finished || s == Killed }

// Outcome is the result of a rank.
type Outcome struct {
	Rank  int
	Host  string
	State State
	// Error is the reason in one line; empty if State.OK.
	Error string
	// ExitCode is -1 if a signal ended the process; Signal is its name.
	ExitCode int
	Signal   string
	Joined   bool
	Report   []byte // from Conn.Report; nil if there was none
	// StateDump is the state of the rank when the group was stopped, from the rank or from /proc.
	StateDump      string
	Stdout, Stderr Output
	// MaxRSS is the peak resident set size in bytes, read from /proc every second
	// and at Conn.Close. MaxRSSIsUpperBound: no reading was made, and the value is
	// from Rusage, which is never less than the launcher's RSS at the fork.
	MaxRSS             int64
	MaxRSSIsUpperBound bool
	User, System       time.Duration // CPU time
	Started            time.Time
	Ended              time.Time
}

// Output is the result of reading a stream of a rank.
type Output struct {
	Bytes   int64  // written by the rank
	Dropped int64  // bytes that are not in the log
	Tail    string // the last bytes
	Path    string // of the log file; empty if there is none
	// Error is why writing the log failed, such as a full disk.
	Error string
}

// RankError is the error of a group whose cause is one rank.
type RankError struct {
	Rank  int
	Host  string
	State State
	Text  string
}

// Error returns the rank, its host, state and reason.
func (e *RankError) Error() string {
	return fmt.Sprintf("%s %s: %s", rankName(e.Rank, e.Host), e.State, e.Text)
}

// rankName names a rank in messages.
func rankName(rank int, host string) string {
	if host == "" {
		return fmt.Sprintf("rank %d", rank)
	}
	return fmt.Sprintf("rank %d (%s)", rank, host)
}

// ExitStatus returns the exit code of a group: that of the first rank that failed by itself, or
// else of the last one that is Stopped (ended with the group), or else 0. As in a shell, a signal
// counts as 128 plus its number. A failed rank that exited with 0 counts as 1. ExitStatus calls
// failed for every rank that failed by itself.
func ExitStatus(outcomes []Outcome, failed func(*Outcome)) (code int) {
	stopped := 0
	for i := range outcomes {
		o := &outcomes[i]
		if o.State.OK() {
			continue
		}
		n := o.ExitCode
		if sig := unix.SignalNum(o.Signal); sig != 0 {
			n = 128 + int(sig)
		} else if n <= 0 {
			n = 1
		}
		if o.State == Stopped {
			stopped = n
			continue
		}
		failed(o)
		code = cmp.Or(code, n)
	}
	return cmp.Or(code, stopped)
}

// exitInfo determines the outcome of a rank.
type exitInfo struct {
	failState   State // Failed or Hung if the launcher stopped the rank; else empty
	failReason  string
	killed      bool   // by Kill
	stopping    bool   // the group's stop has reached the rank
	joined      bool   // the rank called Join
	mustJoin    bool   // Options.Join is JoinRequired
	byeReceived bool   // the rank called Close
	byeReason   string // of Close
	panicLine   string // from stderr
	status      syscall.WaitStatus
}

// classify returns the state of an ended rank and the reason. A bye is the message of Conn.Close,
// with a reason if the program failed.
func (e *exitInfo) classify() (State, string) {
	code := e.status.ExitStatus()
	switch {
	case e.failState != "":
		return e.failState, e.failReason
	case e.status.Signaled():
		return e.classifySignal()
	case e.byeReceived && e.byeReason != "":
		return Failed, e.byeReason
	case code == 0 && (e.byeReceived || !e.joined && !e.mustJoin):
		return Finished, ""
	case e.stopping:
		return Stopped, fmt.Sprintf("exited with %d after the launcher stopped it", code)
	case code == 2 && e.panicLine != "": // 2 is the exit code of a Go program that panics
		return Crashed, e.panicLine
	case code != 0:
		return Exited, fmt.Sprintf("exited with %d", code)
	case e.joined:
		return Exited, "exited with 0 without Close: the program must call Close before it exits"
	default:
		return Exited, "exited with 0 and never joined: the program must call Join"
	}
}

// classifySignal returns the state and the reason of a rank that a signal ended.
func (e *exitInfo) classifySignal() (State, string) {
	sig := e.status.Signal()
	switch {
	case e.killed && sig == syscall.SIGKILL:
		return Killed, ""
	case e.stopping && (sig == syscall.SIGTERM || sig == syscall.SIGKILL):
		return Stopped, "stopped with its group"
	case sig == syscall.SIGKILL:
		return Crashed, "ended by SIGKILL, which the launcher did not send: out of memory, killed by hand, or started on a thread that has ended (see Spec.Start)"
	default:
		return Crashed, fmt.Sprintf("ended by %s", signalName(sig))
	}
}
