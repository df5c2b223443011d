package launch

import (
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// EventKind is the type of an event.
type EventKind uint8

// Event kinds.
const (
	Started  EventKind = iota // the process runs
	Joined                    // the rank called Join
	Marked                    // Text is the argument of Conn.Mark
	Sampled                   // Sample is the argument of Conn.Sample
	Printed                   // Text is a line of Stream, without the newline
	Silent                    // the rank is Hung and is being stopped; Text is the reason
	Failing                   // the rank is Failed and is being stopped; Text is the reason
	Stopping                  // the group is being stopped; Text is the cause, Rank is -1
	Ended                     // the last event of a rank, with its Outcome
)

// String returns the name of the kind.
func (k EventKind) String() string {
	names := [...]string{"started", "joined", "marked", "sampled", "printed", "silent", "failing", "stopping", "ended"}
	if int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("event %d", uint8(k))
}

// Stream is an output stream of a process.
type Stream uint8

// Streams.
const (
	Stdout Stream = iota
	Stderr
)

// String returns "stdout" or "stderr".
func (s Stream) String() string {
	if s == Stderr {
		return "stderr"
	}
	return "stdout"
}

// Event is an event of a rank, or of the group, or of the proxy on Host, if Rank is -1.
type Event struct {
	Rank    int
	Host    string
	At      time.Time
	Kind    EventKind
	Text    string
	Stream  Stream
	Sample  json.RawMessage
	Outcome *Outcome

	fromProxy bool // the rank is not a process of the group, but one of a proxy
}

// eventQueueLen bounds the events queued for OnEvent; ranks then block.
const eventQueueLen = 256

// eventDispatcher calls OnEvent and writes Output, for one event at a time.
type eventDispatcher struct {
	events  chan Event
	done    chan struct{}
	discard bool // neither OnEvent nor Output is set
}

// newEventDispatcher starts the goroutine that calls OnEvent and writes printed lines to Output.
func newEventDispatcher(o Options) *eventDispatcher {
	d := &eventDispatcher{
		events: make(chan Event, eventQueueLen), done: make(chan struct{}),
		discard: o.OnEvent == nil && o.Output == nil,
	}
	go func() {
		defer close(d.done)
		for e := range d.events {
			if e.Kind == Printed && o.Output != nil {
				// There is nowhere to report a write error.
				_, _ = io.WriteString(o.Output, o.Prefix(e.Rank, e.Host, e.Stream)+e.Text+"\n")
			}
			if o.OnEvent != nil {
				o.OnEvent(e)
			}
		}
	}()
	return d
}

// post queues an event, unless events are discarded. It blocks while the queue is full.
func (d *eventDispatcher) post(e Event) {
	if !d.discard {
		d.events <- e
	}
}

// close waits until every event has been delivered.
func (d *eventDispatcher) close() {
	close(d.events)
	<-d.done
}
