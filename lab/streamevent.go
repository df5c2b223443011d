package lab

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/scenarios"
)

// StreamEvent is an action on the segment with a given byte of a TCP stream.
type StreamEvent struct {
	// Index is the index of the event in the scenario.
	Index int
	// Conn is the number of the stream, in the order of connections through the
	// port; 0 means all.
	Conn int
	// Offset is the offset of the byte in this direction of the stream.
	Offset uint64
	Do     StreamAction
	Delay  time.Duration // of StreamDelay
	Bit    uint8         // of StreamCorrupt, in the byte at Offset
}

// StreamAction is the action of a StreamEvent.
type StreamAction string

// The actions.
const (
	StreamDrop    StreamAction = "drop"        // the segment is lost once
	StreamDelay   StreamAction = "delay"       // the segment and those after it are delayed
	StreamCorrupt StreamAction = "corrupt_bit" // a bit is inverted, undetected by TCP
	StreamReset   StreamAction = "reset"       // the connection is reset
)

func streamEventOf(number int, e *scenarios.Event) StreamEvent {
	return StreamEvent{Index: number, Conn: e.Conn, Offset: *e.Offset, Do: StreamAction(e.Do), Delay: e.Delay, Bit: uint8(e.Bit)}
}

// addStreamEvent adds event i to the ports.
func (p *Plan) addStreamEvent(i int) error {
	e, key := &p.Scenario.Events[i], fmt.Sprintf("events[%d]", i)
	event := streamEventOf(i, e)
	switch event.Do {
	case StreamDrop, StreamDelay, StreamCorrupt, StreamReset:
	default:
		return p.errorf(key+".do", "%s is not an action on streams", e.Do)
	}
	ports, err := p.selectPorts(key+".on", e.On)
	p.eachDirection(ports, e.PortSelector, func(i *Impairments) { i.StreamEvents = append(i.StreamEvents, event) })
	return err
}

// StreamMatcher finds the events of one direction of a port in its traffic. It is
// not safe for concurrent use.
type StreamMatcher struct {
	events  []StreamEvent
	fired   []uint64
	done    map[eventInStream]bool
	matched []StreamEvent
}

type eventInStream struct{ event, conn int }

// NewStreamMatcher returns a matcher for events.
func NewStreamMatcher(events []StreamEvent) *StreamMatcher {
	return &StreamMatcher{events: events, fired: make([]uint64, len(events)), done: make(map[eventInStream]bool)}
}

// Empty reports whether the matcher has no events.
func (m *StreamMatcher) Empty() bool { return len(m.events) == 0 }

// Match returns the events in the n bytes of a stream from offset from on, and
// marks them as done: each event occurs once in a stream. The result is valid until
// the next call.
func (m *StreamMatcher) Match(conn int, from uint64, n int) []StreamEvent {
	m.matched = m.matched[:0]
	for i := range m.events {
		e := &m.events[i]
		if m.applies(i, conn) && e.Offset >= from && e.Offset-from < uint64(n) {
			m.done[eventInStream{i, conn}] = true
			m.fired[i]++
			m.matched = append(m.matched, *e)
		}
	}
	return m.matched
}

func (m *StreamMatcher) applies(event, conn int) bool {
	only := m.events[event].Conn
	return (only == 0 || only == conn) && !m.done[eventInStream{event, conn}]
}

// CountStreamEvents adds the occurrences of the events of one direction.
func (o *Observation) CountStreamEvents(m *StreamMatcher) {
	if m == nil {
		return
	}
	o.allocEvents()
	for i := range m.events {
		o.Events[m.events[i].Index] += m.fired[i]
	}
}
