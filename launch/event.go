package launch

import (
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// EventKind says what happened.
type EventKind uint8

// The kinds of event.
const (
	Started  EventKind = iota // the process runs
	Joined                    // it has called rank.Join
	Marked                    // Text is what it marked
	Sampled                   // Sample is what it sampled
	Printed                   // Text is a line of its Stream, without the newline
	Silent                    // it has given no sign of life; Text says for how long
	Failing                   // it broke a rule and is being ended; Text says which
	Stopping                  // the group ends; Text says why, and Rank is -1
	Ended                     // Outcome says how; the last event of a rank
)

// String names the kind.
func (k EventKind) String() string {
	names := [...]string{"started", "joined", "marked", "sampled", "printed", "silent", "failing", "stopping", "ended"}
	if int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("event %d", uint8(k))
}

// Stream is one of the two that a process writes.
type Stream uint8

// The streams.
const (
	Stdout Stream = iota
	Stderr
)

// String is the stream's usual name.
func (s Stream) String() string {
	if s == Stderr {
		return "stderr"
	}
	return "stdout"
}

// Event is something that happened to a rank.
type Event struct {
	Rank    int
	Host    string
	At      time.Time
	Kind    EventKind
	Text    string
	Stream  Stream
	Sample  json.RawMessage
	Outcome *Outcome
}

// eventQueue is how many events may wait for OnEvent before ranks do.
const eventQueue = 256

// teller hands events to the caller, one at a time.
type teller struct {
	events chan Event
	done   chan struct{}
	quiet  bool // nobody listens
}

func newTeller(o Options) *teller {
	t := &teller{
		events: make(chan Event, eventQueue), done: make(chan struct{}),
		quiet: o.OnEvent == nil && o.Output == nil,
	}
	go func() {
		defer close(t.done)
		for e := range t.events {
			if e.Kind == Printed && o.Output != nil {
				// Where output goes to cannot be told where else to complain.
				_, _ = io.WriteString(o.Output, o.Prefix(e.Rank, e.Host, e.Stream)+e.Text+"\n")
			}
			if o.OnEvent != nil {
				o.OnEvent(e)
			}
		}
	}()
	return t
}

// tell queues an event; it waits while the queue is full.
func (t *teller) tell(e Event) {
	if !t.quiet {
		t.events <- e
	}
}

// close returns when every event has been told.
func (t *teller) close() {
	close(t.events)
	<-t.done
}
