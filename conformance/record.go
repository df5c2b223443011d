package conformance

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"slices"
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

// Events returns the events in order, and the number of later ones dropped from a full record.
func (r *Record) Events() (events []Event, dropped int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clip(r.events), r.dropped // an append by the caller must not write to the record
}

// Stream returns the description of the stream with this number, from 1 on.
func (r *Record) Stream(num int) StreamInfo {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.streams[num-1]
}

// add appends an event, or counts it as dropped if the record is full.
func (r *Record) add(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.events) >= maxEvents {
		r.dropped++
		return
	}
	r.events = append(r.events, e)
}

// Clear removes all events. The numbers of streams go on.
func (r *Record) Clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events, r.dropped = nil, 0
}

// RecordWire returns a wire that records all packets of w.
func (r *Record) RecordWire(clock verbs.Proc, w Wire) Wire { return &recordedWire{w, clock, r} }

// recordedWire is a Wire whose packets are recorded.
type recordedWire struct {
	Wire
	clock verbs.Proc
	r     *Record
}

// Send implements Wire, and records the packet that was sent.
func (w *recordedWire) Send(packet []byte) error {
	at := w.clock.Now() // before the response can arrive
	err := w.Wire.Send(packet)
	if err == nil {
		w.r.add(Event{At: at, Kind: EventSent, Data: bytes.Clone(packet)})
	}
	return err
}

// Recv implements Wire, and records the packet that was received.
func (w *recordedWire) Recv(timeout time.Duration) (Frame, error) {
	f, err := w.Wire.Recv(timeout)
	if err == nil {
		w.r.add(Event{At: f.At, Kind: EventReceived, Data: f.Packet}) // no copy: the memory is not reused
	}
	return f, err
}

// RecordStreams returns Streams that record all data of the streams of s.
func (r *Record) RecordStreams(clock verbs.Proc, s Streams) Streams {
	return &recordedStreams{Streams: s, clock: clock, r: r}
}

// RecordRawTCP returns a RawTCP that records all data of the streams of s, whose packets are
// recorded as well.
func (r *Record) RecordRawTCP(clock verbs.Proc, s RawTCP) RawTCP {
	return &recordedRawTCP{recordedStreams{Streams: s, clock: clock, r: r, inPackets: true}, s}
}

// recordedStreams are Streams whose data is recorded.
type recordedStreams struct {
	Streams
	clock     verbs.Proc
	r         *Record
	inPackets bool
}

type recordedRawTCP struct {
	recordedStreams
	tcp RawTCP
}

func (n *recordedRawTCP) SetOptions(s TCPOptions) { n.tcp.SetOptions(s) }

// Dial implements Streams. The stream that it returns records its data.
func (n *recordedStreams) Dial(to netip.AddrPort, timeout time.Duration) (Stream, error) {
	s, err := n.Streams.Dial(to, timeout)
	if err != nil {
		return nil, err
	}
	return n.recordStream(s), nil
}

// Listen implements Streams. The listener's streams record their data.
func (n *recordedStreams) Listen(port uint16) (Listener, error) {
	l, err := n.Streams.Listen(port)
	if err != nil {
		return nil, err
	}
	return &recordedListener{l, n}, nil
}

// recordStream adds a stream to the list of streams in the record, and returns a Stream that
// records its data. n.inPackets means that the stream's packets are recorded too.
func (n *recordedStreams) recordStream(s Stream) Stream {
	n.r.mu.Lock()
	n.r.streams = append(n.r.streams, StreamInfo{Peer: s.Local(), Device: s.Remote(), InPackets: n.inPackets})
	num := len(n.r.streams)
	n.r.mu.Unlock()
	recorded := &recordedStream{s, n, num}
	if raw, ok := s.(RawStream); ok {
		return &recordedRawStream{recorded, raw}
	}
	return recorded
}

type recordedListener struct {
	Listener
	n *recordedStreams
}

// Accept implements Listener. The stream that it returns records its data.
func (l *recordedListener) Accept(timeout time.Duration) (Stream, error) {
	s, err := l.Listener.Accept(timeout)
	if err != nil {
		return nil, err
	}
	return l.n.recordStream(s), nil
}

type recordedStream struct {
	Stream
	n   *recordedStreams
	num int
}

// add records an event of the stream with a copy of the data.
func (s *recordedStream) add(kind EventKind, data []byte) {
	s.n.r.add(Event{At: s.n.clock.Now(), Kind: kind, Stream: s.num, Data: bytes.Clone(data)})
}

func (s *recordedStream) Write(b []byte) error {
	s.add(EventSent, b) // before the response can be recorded
	return s.Stream.Write(b)
}

// Read implements Stream, and records the data, or how the device ended the stream.
func (s *recordedStream) Read(timeout time.Duration) ([]byte, error) {
	b, err := s.Stream.Read(timeout)
	switch {
	case err == nil:
		s.add(EventReceived, b)
	case errors.Is(err, io.EOF):
		s.add(EventReceivedFIN, nil)
	case errors.Is(err, ErrReset):
		s.add(EventReset, nil)
	}
	return b, err
}

func (s *recordedStream) CloseWrite() error {
	s.add(EventSentFIN, nil)
	return s.Stream.CloseWrite()
}

func (s *recordedStream) Reset() error {
	s.add(EventReset, nil)
	return s.Stream.Reset()
}

type recordedRawStream struct {
	*recordedStream
	stream RawStream
}

// Hold implements RawStream: it takes data that SendHeld sends later, in segments. It records the
// data as sent now; the packets in the record show the segments and their times.
func (s *recordedRawStream) Hold(b []byte) error {
	s.add(EventSent, b)
	return s.stream.Hold(b)
}

func (s *recordedRawStream) SendHeld(from, to int) error { return s.stream.SendHeld(from, to) }

func (s *recordedRawStream) SendHeldFIN(from int) error {
	s.add(EventSentFIN, nil)
	return s.stream.SendHeldFIN(from)
}
