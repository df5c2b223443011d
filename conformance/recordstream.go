package conformance

import (
	"errors"
	"io"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// RecordStreams returns a TCP that records all data of s.
func (r *Record) RecordStreams(clock verbs.Proc, s Streams) Streams {
	return &recordedStreams{Streams: s, clock: clock, r: r}
}

// RecordRawTCP is RecordStreams for a RawTCP whose packets are recorded as well.
func (r *Record) RecordRawTCP(clock verbs.Proc, s RawTCP) RawTCP {
	return &recordedRawTCP{recordedStreams{Streams: s, clock: clock, r: r, inPackets: true}, s}
}

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

func (n *recordedStreams) Dial(to netip.AddrPort, timeout time.Duration) (Stream, error) {
	s, err := n.Streams.Dial(to, timeout)
	if err != nil {
		return nil, err
	}
	return n.record(s), nil
}

func (n *recordedStreams) Listen(port uint16) (Listener, error) {
	l, err := n.Streams.Listen(port)
	if err != nil {
		return nil, err
	}
	return &recordedListener{l, n}, nil
}

func (n *recordedStreams) record(s Stream) Stream {
	n.r.mu.Lock()
	n.r.streams = append(n.r.streams, StreamInfo{Peer: s.Local(), Device: s.Remote(), InPackets: n.inPackets})
	num := len(n.r.streams)
	n.r.mu.Unlock()
	recorded := &recordedStream{s, n, num}
	if by, ok := s.(RawStream); ok {
		return &recordedRawStream{recorded, by}
	}
	return recorded
}

type recordedListener struct {
	Listener
	n *recordedStreams
}

func (l *recordedListener) Accept(timeout time.Duration) (Stream, error) {
	s, err := l.Listener.Accept(timeout)
	if err != nil {
		return nil, err
	}
	return l.n.record(s), nil
}

type recordedStream struct {
	Stream
	n   *recordedStreams
	num int
}

func (s *recordedStream) add(kind EventKind, data []byte) {
	s.n.r.add(Event{At: s.n.clock.Now(), Kind: kind, Stream: s.num, Data: append([]byte(nil), data...)})
}

func (s *recordedStream) Write(b []byte) error {
	s.add(EventSent, b) // before the answer can be seen
	return s.Stream.Write(b)
}

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

// Hold is recorded as what was said: how it was sent is in the packets.
func (s *recordedRawStream) Hold(b []byte) error {
	s.add(EventSent, b)
	return s.stream.Hold(b)
}

func (s *recordedRawStream) SendHeld(from, to int) error { return s.stream.SendHeld(from, to) }

func (s *recordedRawStream) SendHeldFIN(from int) error {
	s.add(EventSentFIN, nil)
	return s.stream.SendHeldFIN(from)
}
