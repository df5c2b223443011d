package conformance

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// ErrReset is returned by a stream that was reset.
var ErrReset = errors.New("connection reset")

// EventKind is the kind of an event.
type EventKind uint8

// Kinds of events.
const (
	EventNote        EventKind = iota // a line of text from the case
	EventSent                         // the peer sent Data
	EventReceived                     // the peer received Data from the device
	EventSentFIN                      // the peer sent FIN
	EventReceivedFIN                  // the peer received FIN
	EventReset                        // a stream was reset
)

// Event is one entry of a record.
type Event struct {
	At   time.Duration
	Kind EventKind
	// Data is an IP packet, or the data of one write to or read from a stream.
	Data []byte
	// Stream is the number of the stream, from 1 on; 0 for packets.
	Stream int
	// Text is the text of a note.
	Text string
}

// maxEvents limits a record. Later events are counted and not kept.
const maxEvents = 20_000

// Record is the log of a case: packets, stream data and notes, with their times.
type Record struct {
	mu      sync.Mutex
	events  []Event
	dropped int
	streams []StreamInfo
}

// StreamInfo describes a stream of a record.
type StreamInfo struct {
	Peer, Device netip.AddrPort
	// InPackets reports that the packets of the stream are in the record as well.
	InPackets bool
}

// Events returns the events in order, and how many more were dropped.
func (r *Record) Events() (events []Event, beyond int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.events[:len(r.events):len(r.events)], r.dropped
}

// Stream returns the description of a stream by its number.
func (r *Record) Stream(stream int) StreamInfo {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.streams[stream-1]
}

func (r *Record) add(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.events) >= maxEvents {
		r.dropped++
		return
	}
	r.events = append(r.events, e)
}

func (r *Record) note(at time.Duration, format string, args []any) {
	r.add(Event{At: at, Kind: EventNote, Text: fmt.Sprintf(format, args...)})
}

// RecordWire returns a wire that records all packets of w.
func (r *Record) RecordWire(clock verbs.Proc, w Wire) Wire { return &recordedWire{w, clock, r} }

type recordedWire struct {
	Wire
	clock verbs.Proc
	r     *Record
}

func (w *recordedWire) Send(packet []byte) error {
	at := w.clock.Now() // before the response can arrive
	err := w.Wire.Send(packet)
	if err == nil {
		w.r.add(Event{At: at, Kind: EventSent, Data: append([]byte(nil), packet...)})
	}
	return err
}

func (w *recordedWire) Recv(timeout time.Duration) (Frame, error) {
	f, err := w.Wire.Recv(timeout)
	if err == nil {
		w.r.add(Event{At: f.At, Kind: EventReceived, Data: f.Packet})
	}
	return f, err
}
