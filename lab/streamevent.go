package lab

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/scenarios"
)

// StreamEvent is an exact thing that is done at a place of a TCP stream.
type StreamEvent struct {
	// Number is its index among the scenario's events.
	Number int
	// Conn is which stream, in the order in which they are connected past the port;
	// 0 means each.
	Conn int
	// Offset is how many bytes go this way before it.
	Offset uint64
	Do     StreamDeed
	Delay  time.Duration // what it is held up for
	Bit    uint8         // that is inverted in the byte at Offset
}

// StreamDeed is what a StreamEvent does.
type StreamDeed string

// What can be done to the segment that has the byte at an offset.
const (
	StreamDrop    StreamDeed = "drop"        // it is lost, once
	StreamDelay   StreamDeed = "delay"       // it is held up, and what is behind it waits
	StreamCorrupt StreamDeed = "corrupt_bit" // a bit is inverted, and TCP does not notice
	StreamReset   StreamDeed = "reset"       // it breaks the stream instead of arriving
)

func streamEventOf(number int, e *scenarios.Event) StreamEvent {
	return StreamEvent{Number: number, Conn: e.Conn, Offset: *e.Offset, Do: StreamDeed(e.Do), Delay: e.Delay, Bit: uint8(e.Bit)}
}

// addStreamEvent gives the ports an exact event of streams.
func (p *Plan) addStreamEvent(i int) error {
	e, key := &p.Scenario.Events[i], fmt.Sprintf("events[%d]", i)
	event := streamEventOf(i, e)
	switch event.Do {
	case StreamDrop, StreamDelay, StreamCorrupt, StreamReset:
	default:
		return p.bad(key+".do", "%s cannot be done at a place of a stream", e.Do)
	}
	ports, err := p.pick(key+".on", e.On)
	p.eachWay(ports, e.PortSelector, func(m *Impairments) { m.Streams = append(m.Streams, event) })
	return err
}

// StreamWatch looks for the events of one direction of a port in what passes.
// Whoever carries the packets owns it.
type StreamWatch struct {
	events []StreamEvent
	fired  []uint64
	done   map[watched]bool
	due    []StreamEvent
}

// watched is an event in one stream.
type watched struct{ event, conn int }

// NewStreamWatch watches for events.
func NewStreamWatch(events []StreamEvent) *StreamWatch {
	return &StreamWatch{events: events, fired: make([]uint64, len(events)), done: make(map[watched]bool)}
}

// Empty reports that there is nothing to watch for.
func (w *StreamWatch) Empty() bool { return len(w.events) == 0 }

// At returns the events in n bytes of a stream from an offset on, and notes that
// they happen: each does once in a stream. The result is good until the next call.
func (w *StreamWatch) At(conn int, from uint64, n int) []StreamEvent {
	w.due = w.due[:0]
	for i := range w.events {
		e := &w.events[i]
		if w.meant(i, conn) && e.Offset >= from && e.Offset-from < uint64(n) {
			w.done[watched{i, conn}] = true
			w.fired[i]++
			w.due = append(w.due, *e)
		}
	}
	return w.due
}

func (w *StreamWatch) meant(event, conn int) bool {
	only := w.events[event].Conn
	return (only == 0 || only == conn) && !w.done[watched{event, conn}]
}

// CountStreamEvents adds how often the events of a direction happened to those of
// the scenario.
func (o *Observed) CountStreamEvents(w *StreamWatch) {
	if w == nil {
		return
	}
	o.makeEvents()
	for i := range w.events {
		o.Events[w.events[i].Number] += w.fired[i]
	}
}
