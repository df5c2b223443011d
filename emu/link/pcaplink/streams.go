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

// WrapStreams returns a net that captures the streams of n as interface name. The real TCP
// segments are not known: written and read bytes become segments of the stream's MSS at
// the time of the call, between a handshake and a FIN or RST. An outbound segment
// acknowledges all bytes that were read, an inbound one all that were written. The result
// is a link.StreamWaiter if n is.
func (c *Capture) WrapStreams(name string, n link.StreamNet) link.StreamNet {
	t := &capturedNet{StreamNet: n, intf: c.AddInterface(name), streams: make(map[*capturedStream]int)}
	if w, ok := n.(link.StreamWaiter); ok {
		return &struct {
			*capturedNet
			streamWaitMethods
		}{t, w}
	}
	return t
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
	count    int
	scratch  []byte
}

// Dial implements link.StreamNet.
func (t *capturedNet) Dial(now mono.Time, local, remote netip.AddrPort) (link.StreamLink, error) {
	s, err := t.StreamNet.Dial(now, local, remote)
	if err != nil {
		return nil, err
	}
	own := t.capture(s)
	own.writeOut(now, link.SYN, nil)
	own.sent++
	return own, nil
}

// capture returns s as a captured stream.
func (t *capturedNet) capture(s link.StreamLink) *capturedStream {
	own := &capturedStream{StreamLink: s, net: t}
	t.count++
	t.streams[own] = t.count
	return own
}

// Listen implements link.StreamNet.
func (t *capturedNet) Listen(addr netip.AddrPort, backlog int) (link.StreamListener, error) {
	l, err := t.StreamNet.Listen(addr, backlog)
	if err != nil {
		return nil, err
	}
	return &capturedListener{l, t}, nil
}

// Close implements link.StreamNet. The RSTs of the streams that it aborts have the time of
// the last call.
func (t *capturedNet) Close() error {
	err := t.StreamNet.Close()
	left := slices.SortedFunc(maps.Keys(t.streams), func(a, b *capturedStream) int { return cmp.Compare(t.streams[a], t.streams[b]) })
	clear(t.streams)
	for _, s := range left {
		if s.open && !s.finSent {
			s.writeOut(t.lastTime, link.RST|link.ACK, nil)
		}
	}
	return err
}

type capturedListener struct {
	link.StreamListener
	net *capturedNet
}

// Accept implements link.StreamListener.
func (l *capturedListener) Accept(now mono.Time) (link.StreamLink, error) {
	s, err := l.StreamListener.Accept(now)
	if s == nil {
		return nil, err
	}
	own := l.net.capture(s)
	own.writeIn(now, link.SYN, nil)
	own.rcvd++
	own.writeOut(now, link.SYN|link.ACK, nil)
	own.sent++
	own.writeIn(now, link.ACK, nil)
	own.open = true
	return own, nil
}

// capturedStream is a stream whose calls are captured as segments.
type capturedStream struct {
	link.StreamLink
	net        *capturedNet
	sent, rcvd uint64 // next relative sequence number in each direction
	open       bool   // the handshake is captured
	finSent    bool
	finPending bool // CloseWrite was called before the handshake
	eof, ended bool
}

// writeOut captures an outbound segment.
func (s *capturedStream) writeOut(now mono.Time, flags link.SegmentFlags, b []byte) {
	s.net.lastTime = now
	s.net.intf.WriteSegment(now, Outbound, &link.Segment{
		Src: s.LocalAddr(), Dst: s.RemoteAddr(), Seq: s.sent, Ack: s.rcvd, Flags: flags, Payload: b,
	})
}

// writeIn captures an inbound segment.
func (s *capturedStream) writeIn(now mono.Time, flags link.SegmentFlags, b []byte) {
	s.net.lastTime = now
	s.net.intf.WriteSegment(now, Inbound, &link.Segment{
		Src: s.RemoteAddr(), Dst: s.LocalAddr(), Seq: s.rcvd, Ack: s.sent, Flags: flags, Payload: b,
	})
}

// established captures the rest of a dialer's handshake.
func (s *capturedStream) established(now mono.Time) {
	if s.open {
		return
	}
	s.open = true
	s.writeIn(now, link.SYN|link.ACK, nil)
	s.rcvd++
	s.writeOut(now, link.ACK, nil)
	if s.finPending {
		s.fin(now)
	}
}

func (s *capturedStream) fin(now mono.Time) {
	s.writeOut(now, link.FIN|link.ACK, nil)
	s.sent++
}

// Connected implements link.StreamLink.
func (s *capturedStream) Connected(now mono.Time) bool {
	if !s.StreamLink.Connected(now) {
		return false
	}
	s.established(now)
	return true
}

// Write implements link.StreamLink.
func (s *capturedStream) Write(now mono.Time, b []byte) (int, error) {
	n, err := s.StreamLink.Write(now, b)
	s.writeSegments(now, b[:n])
	return n, err
}

// Writev implements link.StreamLink.
func (s *capturedStream) Writev(now mono.Time, bufs [][]byte, more bool) (int, error) {
	n, err := s.StreamLink.Writev(now, bufs, more)
	b := s.net.scratch[:0]
	for _, buf := range bufs {
		b = append(b, buf[:min(len(buf), n-len(b))]...)
	}
	s.net.scratch = b
	s.writeSegments(now, b)
	return n, err
}

// writeSegments captures written bytes.
func (s *capturedStream) writeSegments(now mono.Time, b []byte) {
	for len(b) > 0 {
		s.established(now)
		part, flags := s.firstSegment(b)
		s.writeOut(now, flags, part)
		s.sent += uint64(len(part))
		b = b[len(part):]
	}
}

// firstSegment returns the bytes of the first segment of b, and its flags.
func (s *capturedStream) firstSegment(b []byte) ([]byte, link.SegmentFlags) {
	const room = maxIPBytes - link.IPv6HeaderLen - link.TCPHeaderLen
	if n := min(max(s.MSS(), 1), room); n < len(b) {
		return b[:n], link.ACK
	}
	return b, link.ACK | link.PSH
}

// Read implements link.StreamLink.
func (s *capturedStream) Read(now mono.Time, b []byte) (int, error) {
	n, err := s.StreamLink.Read(now, b)
	for rest := b[:n]; len(rest) > 0; {
		s.established(now)
		part, flags := s.firstSegment(rest)
		s.writeIn(now, flags, part)
		s.rcvd += uint64(len(part))
		rest = rest[len(part):]
	}
	if err != nil {
		s.readFailed(now, err)
	}
	return n, err
}

// readFailed captures how the peer ended the stream.
func (s *capturedStream) readFailed(now mono.Time, err error) {
	switch {
	case s.ended:
	case errors.Is(err, io.EOF):
		if s.eof {
			return
		}
		s.eof = true
		s.established(now)
		s.writeIn(now, link.FIN|link.ACK, nil)
		s.rcvd++
		if s.finSent {
			s.writeOut(now, link.ACK, nil)
			s.forget()
		}
	case errors.Is(err, link.ErrReset), errors.Is(err, link.ErrRefused):
		s.writeIn(now, link.RST|link.ACK, nil)
		s.forget()
	default: // there was no answer
		s.forget()
	}
}

// forget notes that the stream has ended.
func (s *capturedStream) forget() {
	s.ended = true
	delete(s.net.streams, s)
}

// CloseWrite implements link.StreamLink.
func (s *capturedStream) CloseWrite(now mono.Time) error {
	err := s.StreamLink.CloseWrite(now)
	if err != nil || s.finSent {
		return err
	}
	s.finSent = true
	if s.finPending = !s.open; s.finPending {
		return nil
	}
	s.fin(now)
	if s.eof {
		s.forget()
	}
	return nil
}

// Abort implements link.StreamLink.
func (s *capturedStream) Abort(now mono.Time) error {
	err := s.StreamLink.Abort(now)
	if !s.ended {
		if s.open { // else no segment was captured
			s.writeOut(now, link.RST|link.ACK, nil)
		}
		s.forget()
	}
	return err
}
