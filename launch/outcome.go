package launch

import (
	"fmt"
	"syscall"
	"time"
)

// State is how a rank ended.
type State string

// The states.
const (
	Finished State = "finished" // did its work, said so, and exited with 0
	Failed   State = "failed"   // said that it failed, or broke a rule of the channel
	Exited   State = "exited"   // ended with another code than 0, or without a word
	Crashed  State = "crashed"  // ended by a signal that nobody here sent, or by a Go panic
	Hung     State = "hung"     // gave no sign of life, or would not exit
	Killed   State = "killed"   // ended by Kill
	Stopped  State = "stopped"  // ended because the group did
)

// OK says whether a rank that ended so leaves its group in good order.
func (s State) OK() bool { return s == Finished || s == Killed }

// Outcome is what became of a rank.
type Outcome struct {
	Rank  int
	Host  string
	State State
	// Error says what went wrong, in one line; empty where State.OK.
	Error string
	// ExitCode is -1 if a signal ended the process; Signal names it then.
	ExitCode int
	Signal   string
	Joined   bool
	Report   []byte // as the rank handed it in; nil if it did not
	// Waiting is what the rank was at when its group was ended, as it said itself
	// or as the kernel shows.
	StateDump      string
	Stdout, Stderr Output
	// MaxRSS is the most memory the process had resident, in bytes. It is read
	// from /proc each second and when the rank closes its connection. MaxRSSFloor
	// says that no reading was made, and the kernel's account at exit is used
	// instead, which is at least as much as the launcher itself had.
	MaxRSS             int64
	MaxRSSIsUpperBound bool
	User, System       time.Duration // processor time
	Started            time.Time
	Ended              time.Time
}

// Output is what became of a stream.
type Output struct {
	Bytes   int64  // written by the rank
	Dropped int64  // of these not in the log
	Tail    string // the end of it
	Path    string // of the log; empty if there is none
	// Error says why the log is incomplete, if it is: a full disk, for example.
	Error string
}

// RankError is the error of a group that ended because of one rank.
type RankError struct {
	Rank  int
	Host  string
	State State
	Text  string
}

// Error names the rank, its host and what happened.
func (e *RankError) Error() string {
	return fmt.Sprintf("%s %s: %s", rankName(e.Rank, e.Host), e.State, e.Text)
}

func rankName(rank int, host string) string {
	if host == "" {
		return fmt.Sprintf("rank %d", rank)
	}
	return fmt.Sprintf("rank %d (%s)", rank, host)
}

// ending is what is known of a rank's end.
type ending struct {
	verdict   State  // set by the launcher before the process ended; empty if not
	reason    string // that goes with it
	killed    bool   // by Kill
	stopped   bool   // by the end of the group
	joined    bool
	mustJoin  bool
	bye       bool
	byeReason string
	panicLine string
	status    syscall.WaitStatus
}

// judge says how a rank ended, and why.
func (e *ending) judge() (State, string) {
	code := e.status.ExitStatus()
	switch {
	case e.verdict != "":
		return e.verdict, e.reason
	case e.status.Signaled():
		return e.judgeSignal()
	case e.bye && e.byeReason != "":
		return Failed, e.byeReason
	case code == 0 && (e.bye || !e.joined && !e.mustJoin):
		return Finished, ""
	case e.stopped:
		return Stopped, fmt.Sprintf("exited with %d when it was told to end", code)
	case code == 2 && e.panicLine != "":
		return Crashed, e.panicLine
	case code != 0:
		return Exited, fmt.Sprintf("exited with %d", code)
	case e.joined:
		return Exited, "exited with 0 and without a word: it must end with Close"
	default:
		return Exited, "exited with 0 and never joined: the program must call rank.Join"
	}
}

func (e *ending) judgeSignal() (State, string) {
	sig := e.status.Signal()
	switch {
	case e.killed && sig == syscall.SIGKILL:
		return Killed, ""
	case e.stopped && (sig == syscall.SIGTERM || sig == syscall.SIGKILL):
		return Stopped, "stopped with its group"
	case sig == syscall.SIGKILL:
		return Crashed, "ended by SIGKILL, not from here: out of memory, killed by hand, or started on a thread that has ended (see Spec.Start)"
	default:
		return Crashed, fmt.Sprintf("ended by %s", signalName(sig))
	}
}
