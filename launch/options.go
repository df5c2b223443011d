package launch

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"time"
)

// JoinMode says whether ranks must call Join.
type JoinMode uint8

// Join modes.
const (
	// JoinRequired: every rank must call Join, and Close at the end.
	JoinRequired JoinMode = iota
	// JoinOptional: any program can be a rank. If it does not join, its exit code is
	// its result, and barriers of other ranks wait until it exits.
	JoinOptional
)

// Options configure a group. Zero values mean the defaults in the comments.
type Options struct {
	Join        JoinMode
	JoinTimeout time.Duration // from the start to Join; 10 s

	// Heartbeat is the interval of heartbeats; 500 ms, none if negative. A rank is
	// Hung if for HangTimeout (10 s) it sends nothing, reads nothing from its
	// control channel, or does not exit after the channel has closed. Time in which the rank waits
	// for a CPU does not count, up to five times HangTimeout.
	Heartbeat   time.Duration
	HangTimeout time.Duration

	TermGrace   time.Duration // from SIGTERM to SIGKILL; 5 s
	DumpTimeout time.Duration // for state dumps; 3 s

	// KeepGoing lets the other ranks continue when a rank fails. By default the
	// launcher collects their state dumps and stops them.
	KeepGoing bool

	// LogDir is an existing directory for the output of ranks, in files such as
	// rank3.stdout. Groups must not share it. Empty means no log files.
	LogDir string
	// LogLimit is the number of bytes of each stream to log and print; 16 MiB. The
	// launcher drops the rest, except for the tail.
	LogLimit int64
	// Output receives every output line after the prefix that Prefix returns ("3: "
	// for rank 3 if nil). A writer that blocks also blocks the ranks.
	Output io.Writer
	Prefix func(rank int, host string, s Stream) string

	MaxMessage int // bytes of a message between ranks; 4 MiB
	MaxReport  int // bytes of a rank's report; 16 MiB

	// OnEvent is called for one event at a time; the events of each rank are in order. Ranks block
	// while it runs, so it must not call Wait, SendCommand or Dump.
	OnEvent func(Event)
}

// maxFrame is the upper bound of MaxMessage and MaxReport.
const maxFrame = 256 << 20

// withDefaults sets defaults for zero values and validates the options. Heartbeat < 0 means none.
func (o Options) withDefaults() (Options, error) {
	o.JoinTimeout = cmp.Or(o.JoinTimeout, 10*time.Second)
	o.Heartbeat = cmp.Or(o.Heartbeat, 500*time.Millisecond)
	o.HangTimeout = cmp.Or(o.HangTimeout, 10*time.Second)
	o.TermGrace = cmp.Or(o.TermGrace, 5*time.Second)
	o.DumpTimeout = cmp.Or(o.DumpTimeout, 3*time.Second)
	o.LogLimit = cmp.Or(o.LogLimit, 16<<20)
	o.MaxMessage = cmp.Or(o.MaxMessage, 4<<20)
	o.MaxReport = cmp.Or(o.MaxReport, 16<<20)
	if o.Prefix == nil {
		o.Prefix = func(rank int, _ string, _ Stream) string { return fmt.Sprintf("%d: ", rank) }
	}
	switch {
	case o.JoinTimeout < 0 || o.HangTimeout < 0 || o.TermGrace < 0 || o.DumpTimeout < 0:
		return o, fmt.Errorf("negative timeout: JoinTimeout %v, HangTimeout %v, TermGrace %v, DumpTimeout %v",
			o.JoinTimeout, o.HangTimeout, o.TermGrace, o.DumpTimeout)
	case o.Heartbeat > o.HangTimeout/2:
		return o, fmt.Errorf("HangTimeout %v is less than two heartbeats of %v", o.HangTimeout, o.Heartbeat)
	case o.LogLimit < 0:
		return o, fmt.Errorf("LogLimit is negative: %d", o.LogLimit)
	case o.MaxMessage < 0 || o.MaxMessage > maxFrame || o.MaxReport < 0 || o.MaxReport > maxFrame:
		return o, fmt.Errorf("MaxMessage %d and MaxReport %d must not be negative and must be at most %d", o.MaxMessage, o.MaxReport, maxFrame)
	}
	if o.LogDir != "" {
		if st, err := os.Stat(o.LogDir); err != nil {
			return o, fmt.Errorf("log directory: %w", err)
		} else if !st.IsDir() {
			return o, fmt.Errorf("log directory: %s is not a directory", o.LogDir)
		}
	}
	return o, nil
}
