package lab

import (
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/scenarios"
)

// addImpairments adds the scenario's impairments to the ports, in the order of the file.
func (p *Plan) addImpairments() error {
	var errs []error
	for i := range p.Scenario.Impair {
		im, key := &p.Scenario.Impair[i], fmt.Sprintf("impair[%d]", i)
		spec := impairSpec(im)
		if err := spec.Validate(); err != nil {
			errs = append(errs, p.Scenario.Errorf(key, "%w", err))
			continue
		}
		ports, err := p.selectPorts(key+".on", im.On)
		errs = append(errs, err)
		p.eachDirection(ports, im.PortSelector, func(m *Impairments) { m.Specs = append(m.Specs, spec) })
	}
	return errors.Join(errs...)
}

// impairSpec converts the impairments of a scenario.
func impairSpec(im *scenarios.Impairment) impair.Spec {
	return impair.Spec{
		From: mono.Time(im.From), Until: mono.Time(im.Until),
		LossPPM: uint32(im.Loss),
		Burst: impair.GilbertElliott{
			ToBadPPM: uint32(im.Burst.ToBad), ToGoodPPM: uint32(im.Burst.ToGood), LossBadPPM: uint32(im.Burst.Loss),
		},
		DuplicatePPM: uint32(im.Duplicate), DuplicateDelay: im.DuplicateDelay,
		ReorderPPM: uint32(im.Reorder), ReorderDelay: im.ReorderDelay,
		Delay: im.Delay, Jitter: im.Jitter, KeepOrder: im.KeepOrder,
		CorruptPPM: uint32(im.Corrupt), TruncatePPM: uint32(im.Truncate), MarkPPM: uint32(im.Mark),
		RateBps: uint64(im.Rate), QueueBytes: int(im.Queue),
	}
}

// addEvents adds the scenario's events to the ports: actions on single packets, or on bytes of a
// TCP stream. An event with several directions counts packets in each of them separately.
func (p *Plan) addEvents() error {
	var errs []error
	for i := range p.Scenario.Events {
		e, key := &p.Scenario.Events[i], fmt.Sprintf("events[%d]", i)
		if e.Offset != nil {
			errs = append(errs, p.addStreamEvent(i))
			continue
		}
		event := impairEvent(e)
		if err := event.Validate(p.Provider.Dissector); err != nil {
			errs = append(errs, p.Scenario.Errorf(key, "%w", err))
			continue
		}
		ports, err := p.selectPorts(key+".on", e.On)
		errs = append(errs, err)
		p.eachDirection(ports, e.PortSelector, func(m *Impairments) {
			m.Events = append(m.Events, event)
			m.EventIndexes = append(m.EventIndexes, i)
		})
	}
	return errors.Join(errs...)
}

// eachDirection calls f once for each direction of packets that a selector of the scenario selects:
// ends are the cable ends that its key "on" names, and its key "way" selects the directions out of
// and into them. A reversed end has no Impairments of its own: those of the port at the other end
// of the cable apply, with out and in swapped.
func (p *Plan) eachDirection(ends []portEnd, where scenarios.PortSelector, f func(*Impairments)) {
	done := make(map[*Impairments]bool)
	call := func(m *Impairments) {
		if !done[m] {
			done[m] = true
			f(m)
		}
	}
	for _, end := range ends {
		out, in := &p.Ports[end.port].Out, &p.Ports[end.port].In
		if end.reversed {
			out, in = in, out
		}
		if where.Outward() {
			call(out)
		}
		if where.Inward() {
			call(in)
		}
	}
}

// impairEvent converts an event of a scenario that names a packet, by its PSN or its number.
func impairEvent(e *scenarios.Event) impair.Event {
	out := impair.Event{
		Match:      impair.Match{Seq: e.PSN},
		Occurrence: e.Time, // 1 is the first transmission of the PSN, 2 its first retransmission
		Action: impair.Action{
			Kind: impair.ActionKind(e.Do), Count: e.Count, Delay: e.Delay, Bit: e.Bit, Bytes: int(e.Bytes),
			ECN: e.ECN, Field: e.Field, Value: e.Value,
		},
	}
	if e.QP != nil {
		out.Match.Flow = new(impair.Flow(*e.QP))
	}
	if e.Nth > 0 {
		out.Match.Nth = &e.Nth
	}
	return out
}

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

// addStreamEvent adds event i of the scenario, at an offset in a TCP stream, to the ports.
func (p *Plan) addStreamEvent(i int) error {
	e, key := &p.Scenario.Events[i], fmt.Sprintf("events[%d]", i)
	event := StreamEvent{Index: i, Conn: e.Conn, Offset: *e.Offset, Do: StreamAction(e.Do), Delay: e.Delay, Bit: uint8(e.Bit)}
	switch event.Do {
	case StreamDrop, StreamDelay, StreamCorrupt, StreamReset:
	default:
		return p.Scenario.Errorf(key+".do", "%s is not an action on streams", e.Do)
	}
	ports, err := p.selectPorts(key+".on", e.On)
	p.eachDirection(ports, e.PortSelector, func(m *Impairments) { m.StreamEvents = append(m.StreamEvents, event) })
	return err
}

// StreamMatcher finds the events of one direction of a port in its traffic. It is
// not safe for concurrent use.
type StreamMatcher struct {
	events  []StreamEvent
	fired   []uint64 // occurrences of each event
	done    map[eventInStream]bool
	matched []StreamEvent // result of Match
}

type eventInStream struct{ event, conn int }

// NewStreamMatcher returns a matcher for events.
func NewStreamMatcher(events []StreamEvent) *StreamMatcher {
	return &StreamMatcher{events: events, fired: make([]uint64, len(events)), done: make(map[eventInStream]bool)}
}

// Empty reports whether the matcher has no events.
func (m *StreamMatcher) Empty() bool { return len(m.events) == 0 }

// Match returns the events whose offset is in the n bytes of a stream that start at offset from. It
// marks them as done: each event occurs once in a stream. conn numbers the streams of the port from
// 1. The result is valid until the next call.
func (m *StreamMatcher) Match(conn int, from uint64, n int) []StreamEvent {
	m.matched = m.matched[:0]
	for i := range m.events {
		e, key := &m.events[i], eventInStream{i, conn}
		selected := e.Conn == 0 || e.Conn == conn
		if selected && !m.done[key] && e.Offset >= from && e.Offset-from < uint64(n) {
			m.done[key] = true
			m.fired[i]++
			m.matched = append(m.matched, *e)
		}
	}
	return m.matched
}

// CountStreamEvents adds the occurrences of the events of a matcher, which may be nil, to Events.
func (o *Observation) CountStreamEvents(m *StreamMatcher) {
	if m == nil {
		return
	}
	o.allocEvents()
	for i := range m.events {
		o.Events[m.events[i].Index] += m.fired[i]
	}
}
