package conformance

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// ErrReset is what a stream returns that the device has broken.
var ErrReset = errors.New("connection reset")

// EventKind says what an event of a record is.
type EventKind uint8

// The kinds of events.
const (
	EventNote    EventKind = iota // the case says something
	EventSent                     // the judge sent Data
	EventCame                     // Data came from the device
	EventSentEnd                  // the judge closed its side of a stream
	EventCameEnd                  // the device closed its side
	EventReset                    // a stream broke
)

// Event is something that happened in a case.
type Event struct {
	At   time.Duration
	Kind EventKind
	// Data is an IP packet, or what was written to or read from a stream at once.
	Data []byte
	// Stream numbers the streams of the case from 1 on; 0 for packets.
	Stream int
	// Text is that of a note, or how something ended.
	Text string
}

// maxEvents bounds a record: what comes beyond is counted and not kept.
const maxEvents = 20_000

// Record keeps what happened in a case, as evidence.
type Record struct {
	mu      sync.Mutex
	events  []Event
	beyond  int
	streams []StreamEnds
}

// StreamEnds are the addresses of a stream in a record.
type StreamEnds struct {
	Peer, Device netip.AddrPort
	// InPackets says that the packets of the stream are in the record as well: it tells
	// then twice what was said.
	InPackets bool
}

// Events returns what happened, in order, and how much more did that was not kept.
func (r *Record) Events() (events []Event, beyond int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.events[:len(r.events):len(r.events)], r.beyond
}

// Ends returns the addresses of a stream of the record.
func (r *Record) Ends(stream int) StreamEnds {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.streams[stream-1]
}

func (r *Record) add(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.events) >= maxEvents {
		r.beyond++
		return
	}
	r.events = append(r.events, e)
}

func (r *Record) note(at time.Duration, format string, args []any) {
	r.add(Event{At: at, Kind: EventNote, Text: fmt.Sprintf(format, args...)})
}

// Recorded returns a wire that keeps in the record what passes through it.
func (r *Record) Recorded(clock verbs.Proc, w Wire) Wire { return &recordedWire{w, clock, r} }

type recordedWire struct {
	Wire
	clock verbs.Proc
	r     *Record
}

func (w *recordedWire) Send(packet []byte) error {
	at := w.clock.Now() // before the answer can be seen
	err := w.Wire.Send(packet)
	if err == nil {
		w.r.add(Event{At: at, Kind: EventSent, Data: append([]byte(nil), packet...)})
	}
	return err
}

func (w *recordedWire) Recv(timeout time.Duration) (Frame, error) {
	f, err := w.Wire.Recv(timeout)
	if err == nil {
		w.r.add(Event{At: f.At, Kind: EventCame, Data: f.Packet})
	}
	return f, err
}
