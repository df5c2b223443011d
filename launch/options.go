package launch

import (
	"fmt"
	"io"
	"os"
	"time"
)

// JoinMode says whether ranks must speak to their launcher.
type JoinMode uint8

// The modes.
const (
	// JoinRequired: every rank calls rank.Join, and ends with Close.
	JoinRequired JoinMode = iota
	// JoinOptional: any program will do. Of one that never joins, only its exit
	// code counts; barriers of others wait until it has ended.
	JoinOptional
)

// Options are how a group is run. The zero value of each means what its comment
// says.
type Options struct {
	Join        JoinMode
	JoinTimeout time.Duration // until a rank must have joined; 10 s

	// Heartbeat is how often ranks are asked for a sign of life; 500 ms, none if
	// negative. Patience is how long a rank may be silent before it is hung, how
	// long it may leave its channel unread, and how long its process may go on
	// after the channel is closed; 10 s.
	Heartbeat   time.Duration
	HangTimeout time.Duration

	TermGrace   time.Duration // from SIGTERM to SIGKILL; 5 s
	DumpTimeout time.Duration // for ranks to say what they are at; 3 s

	// KeepGoing lets the others go on when a rank fails. By default the group
	// ends: the others are asked what they are at, and stopped.
	KeepGoing bool

	// LogDir is where the output of rank 3 is written, to rank3.stdout and
	// rank3.stderr; nowhere if empty. The folder must exist, and be of no other
	// group's.
	LogDir string
	// LogLimit is how many bytes of each stream are logged and shown; 16 MiB. What
	// comes after is read and dropped but for its end.
	LogLimit int64
	// TailBytes is how much of each stream's end an Outcome has; 64 KiB.
	TailBytes int
	// Output gets every line of every rank, after what Prefix returns ("3: " if it
	// is nil). A writer that blocks makes the ranks wait.
	Output io.Writer
	Prefix func(rank int, host string, s Stream) string

	MaxMessage int // between ranks; 4 MiB
	MaxReport  int // of a rank; 16 MiB

	// OnEvent is told what happens, one event at a time, in an order that is right
	// for each rank. While it does not return, ranks that have something to tell
	// wait; so it must not wait for them in turn (Wait, Order, Dump).
	OnEvent func(Event)
}

// maxFrame bounds what a caller may allow ranks to send in one piece.
const maxFrame = 256 << 20

// withDefaults fills in what was left out, and says what cannot be.
func (o Options) withDefaults() (Options, error) {
	orElse(&o.JoinTimeout, 10*time.Second)
	orElse(&o.Heartbeat, 500*time.Millisecond)
	orElse(&o.HangTimeout, 10*time.Second)
	orElse(&o.TermGrace, 5*time.Second)
	orElse(&o.DumpTimeout, 3*time.Second)
	orElse(&o.LogLimit, 16<<20)
	orElse(&o.TailBytes, 64<<10)
	orElse(&o.MaxMessage, 4<<20)
	orElse(&o.MaxReport, 16<<20)
	if o.Prefix == nil {
		o.Prefix = func(rank int, _ string, _ Stream) string { return fmt.Sprintf("%d: ", rank) }
	}
	switch {
	case o.JoinTimeout < 0 || o.HangTimeout < 0 || o.TermGrace < 0 || o.DumpTimeout < 0:
		return o, fmt.Errorf("a time is negative: %v for joining, patience %v, grace %v, %v for dumps",
			o.JoinTimeout, o.HangTimeout, o.TermGrace, o.DumpTimeout)
	case o.Heartbeat > o.HangTimeout/2:
		return o, fmt.Errorf("patience of %v is less than two heart-beats of %v", o.HangTimeout, o.Heartbeat)
	case o.LogLimit < 0 || o.TailBytes < 0 || o.TailBytes > maxFrame:
		return o, fmt.Errorf("output limits %d and %d cannot be", o.LogLimit, o.TailBytes)
	case o.MaxMessage < 0 || o.MaxMessage > maxFrame || o.MaxReport < 0 || o.MaxReport > maxFrame:
		return o, fmt.Errorf("limits of %d for messages and %d for reports must be within %d", o.MaxMessage, o.MaxReport, maxFrame)
	}
	if o.LogDir != "" {
		if st, err := os.Stat(o.LogDir); err != nil {
			return o, fmt.Errorf("log folder: %w", err)
		} else if !st.IsDir() {
			return o, fmt.Errorf("log folder: %s is not a folder", o.LogDir)
		}
	}
	return o, nil
}

func orElse[T comparable](v *T, otherwise T) {
	var zero T
	if *v == zero {
		*v = otherwise
	}
}
