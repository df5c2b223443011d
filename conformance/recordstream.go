package conformance

import (
	"errors"
	"io"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// RecordedStreams returns a TCP that keeps in the record what passes through it.
func (r *Record) RecordedStreams(clock verbs.Proc, s Streams) Streams {
	return &recordedStreams{Streams: s, clock: clock, r: r}
}

// RecordedSegments is the same for a TCP that is made by hand, on a wire that is recorded.
func (r *Record) RecordedSegments(clock verbs.Proc, s Segments) Segments {
	return &recordedSegments{recordedStreams{Streams: s, clock: clock, r: r, inPackets: true}, s}
}

type recordedStreams struct {
	Streams
	clock     verbs.Proc
	r         *Record
	inPackets bool
}

type recordedSegments struct {
	recordedStreams
	by Segments
}

func (n *recordedSegments) Shape(s TCPShape) { n.by.Shape(s) }

func (n *recordedStreams) Dial(to netip.AddrPort, timeout time.Duration) (Stream, error) {
	s, err := n.Streams.Dial(to, timeout)
	if err != nil {
		return nil, err
	}
	return n.recorded(s), nil
}

func (n *recordedStreams) Listen(port uint16) (Listener, error) {
	l, err := n.Streams.Listen(port)
	if err != nil {
		return nil, err
	}
	return &recordedListener{l, n}, nil
}

func (n *recordedStreams) recorded(s Stream) Stream {
	n.r.mu.Lock()
	n.r.streams = append(n.r.streams, StreamEnds{Peer: s.Local(), Device: s.Remote(), InPackets: n.inPackets})
	num := len(n.r.streams)
	n.r.mu.Unlock()
	recorded := &recordedStream{s, n, num}
	if by, ok := s.(Segmented); ok {
		return &recordedSegmented{recorded, by}
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
	return l.n.recorded(s), nil
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
		s.add(EventCame, b)
	case errors.Is(err, io.EOF):
		s.add(EventCameEnd, nil)
	case errors.Is(err, ErrReset):
		s.add(EventReset, nil)
	}
	return b, err
}

func (s *recordedStream) CloseWrite() error {
	s.add(EventSentEnd, nil)
	return s.Stream.CloseWrite()
}

func (s *recordedStream) Reset() error {
	s.add(EventReset, nil)
	return s.Stream.Reset()
}

type recordedSegmented struct {
	*recordedStream
	by Segmented
}

// Hold is recorded as what was said: how it was sent is in the packets.
func (s *recordedSegmented) Hold(b []byte) error {
	s.add(EventSent, b)
	return s.by.Hold(b)
}

func (s *recordedSegmented) Release(from, to int) error { return s.by.Release(from, to) }

func (s *recordedSegmented) ReleaseEnd(from int) error {
	s.add(EventSentEnd, nil)
	return s.by.ReleaseEnd(from)
}
