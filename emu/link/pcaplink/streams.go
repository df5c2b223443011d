package pcaplink

import (
	"cmp"
	"errors"
	"io"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// WrapStreams returns a net that captures the streams of n, at a new interface called name; it is a
// link.StreamWaiter if n is. The real TCP segments are not known: written and read bytes become
// segments of the stream's MSS at the time of the call, between a handshake and a FIN or RST. Each
// segment acknowledges all bytes captured in the other direction.
func (c *Capture) WrapStreams(name string, n link.StreamNet) link.StreamNet {
	captured := &capturedNet{StreamNet: n, intf: c.AddInterface(name), streams: make(map[*capturedStream]int)}
	if w, ok := n.(link.StreamWaiter); ok {
		return &struct {
			*capturedNet
			streamWaitMethods
		}{captured, w}
	}
	return captured
}

// streamWaitMethods are the methods that link.StreamWaiter adds.
type streamWaitMethods interface {
	WaitReady(d time.Duration) error
	Wake()
}

// capturedNet is a net whose streams are captured.
type capturedNet struct {
	link.StreamNet
	intf     *Interface
	lastTime mono.Time               // of the last call
	streams  map[*capturedStream]int // open streams, with their order of creation
	count    int                     // streams that were created
	scratch  []byte                  // buffer for the bytes of a Writev
}

// Dial implements link.StreamNet, and captures a SYN.
func (n *capturedNet) Dial(now mono.Time, local, remote netip.AddrPort) (link.StreamLink, error) {
	s, err := n.StreamNet.Dial(now, local, remote)
	if err != nil {
		return nil, err
	}
	captured := n.newStream(s)
	captured.writeOut(now, link.SYN, nil)
	captured.sent++
	return captured, nil
}

// newStream wraps a new stream, numbers it, and adds it to the open streams.
func (n *capturedNet) newStream(s link.StreamLink) *capturedStream {
	captured := &capturedStream{StreamLink: s, net: n}
	n.count++
	n.streams[captured] = n.count
	return captured
}

// Listen implements link.StreamNet. The listener captures the streams that it accepts.
func (n *capturedNet) Listen(addr netip.AddrPort, backlog int) (link.StreamListener, error) {
	l, err := n.StreamNet.Listen(addr, backlog)
	if err != nil {
		return nil, err
	}
	return &capturedListener{l, n}, nil
}

// Close implements link.StreamNet. It captures an RST for each connected stream whose write side is
// open, in the order of creation and at the time of the last captured segment.
func (n *capturedNet) Close() error {
	err := n.StreamNet.Close()
	streams := slices.SortedFunc(maps.Keys(n.streams), func(a, b *capturedStream) int { return cmp.Compare(n.streams[a], n.streams[b]) })
	clear(n.streams)
	for _, s := range streams {
		if s.handshakeCaptured && !s.writeClosed {
			s.writeOut(n.lastTime, link.RST|link.ACK, nil)
		}
	}
	return err
}

type capturedListener struct {
	link.StreamListener
	net *capturedNet
}

// Accept implements link.StreamListener, and captures the handshake of the stream.
func (l *capturedListener) Accept(now mono.Time) (link.StreamLink, error) {
	s, err := l.StreamListener.Accept(now)
	if s == nil {
		return nil, err
	}
	captured := l.net.newStream(s)
	captured.writeIn(now, link.SYN, nil)
	captured.rcvd++
	captured.writeOut(now, link.SYN|link.ACK, nil)
	captured.sent++
	captured.writeIn(now, link.ACK, nil)
	captured.handshakeCaptured = true
	return captured, nil
}

// capturedStream is a stream whose calls are captured as segments.
type capturedStream struct {
	link.StreamLink
	net               *capturedNet
	sent, rcvd        uint64 // next relative sequence number in each direction
	handshakeCaptured bool   // the handshake is captured
	writeClosed       bool   // CloseWrite was called
	finPending        bool   // its FIN follows the handshake
	eof               bool   // the peer's FIN is captured
	ended             bool   // nothing more is captured
}

// writeOut captures an outbound segment with payload b. The caller advances s.sent.
func (s *capturedStream) writeOut(now mono.Time, flags link.SegmentFlags, b []byte) {
	s.net.lastTime = now
	s.net.intf.WriteSegment(now, Outbound, &link.Segment{
		Src: s.LocalAddr(), Dst: s.RemoteAddr(), Seq: s.sent, Ack: s.rcvd, Flags: flags, Payload: b,
	})
}

// writeIn captures an inbound segment with payload b. The caller advances s.rcvd.
func (s *capturedStream) writeIn(now mono.Time, flags link.SegmentFlags, b []byte) {
	s.net.lastTime = now
	s.net.intf.WriteSegment(now, Inbound, &link.Segment{
		Src: s.RemoteAddr(), Dst: s.LocalAddr(), Seq: s.rcvd, Ack: s.sent, Flags: flags, Payload: b,
	})
}

// ensureHandshake captures the rest of a dialer's handshake, unless it is captured already, and
// then the FIN of an earlier CloseWrite.
func (s *capturedStream) ensureHandshake(now mono.Time) {
	if s.handshakeCaptured {
		return
	}
	s.handshakeCaptured = true
	s.writeIn(now, link.SYN|link.ACK, nil)
	s.rcvd++
	s.writeOut(now, link.ACK, nil)
	if s.finPending {
		s.writeFIN(now)
	}
}

// writeFIN captures an outbound FIN.
func (s *capturedStream) writeFIN(now mono.Time) {
	s.writeOut(now, link.FIN|link.ACK, nil)
	s.sent++
}

// Connected implements link.StreamLink, and captures the handshake of a connected stream.
func (s *capturedStream) Connected(now mono.Time) bool {
	if !s.StreamLink.Connected(now) {
		return false
	}
	s.ensureHandshake(now)
	return true
}

// Write implements link.StreamLink, and captures the bytes that were written.
func (s *capturedStream) Write(now mono.Time, b []byte) (int, error) {
	n, err := s.StreamLink.Write(now, b)
	s.writeSegments(now, b[:n], s.writeOut, &s.sent)
	return n, err
}

// Writev implements link.StreamLink, and captures the bytes that were written.
func (s *capturedStream) Writev(now mono.Time, bufs [][]byte, more bool) (int, error) {
	n, err := s.StreamLink.Writev(now, bufs, more)
	b := s.net.scratch[:0]
	for _, buf := range bufs {
		b = append(b, buf[:min(len(buf), n-len(b))]...)
	}
	s.net.scratch = b
	s.writeSegments(now, b, s.writeOut, &s.sent)
	return n, err
}

// segmentWriter captures a segment with a payload: writeOut or writeIn.
type segmentWriter func(now mono.Time, flags link.SegmentFlags, payload []byte)

// writeSegments captures b as segments of up to an MSS, the last with PSH, and before them the
// handshake if that is not captured yet. write captures one segment (writeOut or writeIn).
// writeSegments advances *seq, the next sequence number in that direction.
func (s *capturedStream) writeSegments(now mono.Time, b []byte, write segmentWriter, seq *uint64) {
	const maxPayload = maxIPBytes - link.IPv6HeaderLen - link.TCPHeaderLen
	for len(b) > 0 {
		s.ensureHandshake(now)
		n, flags := min(max(s.MSS(), 1), maxPayload), link.ACK
		if n >= len(b) {
			n, flags = len(b), link.ACK|link.PSH
		}
		write(now, flags, b[:n])
		*seq += uint64(n)
		b = b[n:]
	}
}

// Read implements link.StreamLink, and captures the bytes that were read, or how the stream ended.
func (s *capturedStream) Read(now mono.Time, b []byte) (int, error) {
	n, err := s.StreamLink.Read(now, b)
	s.writeSegments(now, b[:n], s.writeIn, &s.rcvd)
	if err != nil {
		s.writeEnd(now, err)
	}
	return n, err
}

// writeEnd captures how the peer ended the stream, given the error of Read: a FIN for EOF, an RST
// for a reset or refusal, nothing for a timeout. A stream that ended earlier is not captured again.
func (s *capturedStream) writeEnd(now mono.Time, err error) {
	switch {
	case s.ended:
	case errors.Is(err, io.EOF):
		if s.eof {
			return
		}
		s.eof = true
		s.ensureHandshake(now)
		s.writeIn(now, link.FIN|link.ACK, nil)
		s.rcvd++
		if s.writeClosed {
			s.writeOut(now, link.ACK, nil)
			s.setEnded()
		}
	case errors.Is(err, link.ErrReset), errors.Is(err, link.ErrRefused):
		s.writeIn(now, link.RST|link.ACK, nil)
		s.setEnded()
	default: // the connection timed out: no segment arrived
		s.setEnded()
	}
}

// setEnded marks the stream as ended, and removes it from the open streams.
func (s *capturedStream) setEnded() {
	s.ended = true
	delete(s.net.streams, s)
}

// CloseWrite implements link.StreamLink. It captures a FIN, after the handshake if that is pending.
func (s *capturedStream) CloseWrite(now mono.Time) error {
	err := s.StreamLink.CloseWrite(now)
	if err != nil || s.writeClosed {
		return err
	}
	s.writeClosed = true
	if !s.handshakeCaptured {
		s.finPending = true
		return nil
	}
	s.writeFIN(now)
	if s.eof { // both ends have sent a FIN
		s.setEnded()
	}
	return nil
}

// Abort implements link.StreamLink, and captures an RST if the stream was connected.
func (s *capturedStream) Abort(now mono.Time) error {
	err := s.StreamLink.Abort(now)
	if !s.ended {
		if s.handshakeCaptured { // before the handshake, TCP sends no RST
			s.writeOut(now, link.RST|link.ACK, nil)
		}
		s.setEnded()
	}
	return err
}
