package sim

import (
	"fmt"
	"io"
	"net/netip"
	"slices"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// Stream is one end of a byte stream: a link.StreamLink.
type Stream struct {
	net           *Net
	port          *Port
	peer          *Stream // nil until the peer has the first segment
	local, remote netip.AddrPort
	mss           int
	conn          int // how many were dialed in the Net before it, and it
	open          bool
	err           error // the stream is broken

	in   ring[*segment] // arrived, not read
	eof  bool           // the peer's end has arrived behind them
	told bool           // Read has said that the stream ended or broke

	host *StreamHost // that has it; nil if it was made without one
	id   link.StreamID

	window    int    // bytes that may be written
	rcvd      uint64 // what comes next from the peer, as link.Segment counts
	starved   bool   // fewer were taken than were given
	written   uint64 // bytes that were
	finQueued bool   // CloseWrite was called
	finSent   bool
	events    []StreamEvent // for this direction, still to come, by offset
	chance    streamChance

	atSwitch, atPort mono.Time // when the last segment gets there
	atHop            [maxStreamHops]mono.Time

	held     ring[*segment] // at the peer's port, waiting for a way through
	attempts int
	retry    Timer

	readable, writable hook
}

var _ link.StreamLink = (*Stream)(nil)

// OnReadable runs h, in an event, when bytes, the end of the stream or its
// failure have arrived.
func (s *Stream) OnReadable(h Handler, arg uint64) { s.readable = hook{h, arg} }

// OnWritable runs h, in an event, when the stream is connected, has failed, or
// has room again for a segment or half of its buffer.
func (s *Stream) OnWritable(h Handler, arg uint64) { s.writable = hook{h, arg} }

// Connected reports whether the peer has accepted the stream.
func (s *Stream) Connected(mono.Time) bool { return s.open }

// ID implements link.StreamLink. It is 0 unless a StreamHost made the stream.
func (s *Stream) ID() link.StreamID { return s.id }

// Write implements link.StreamLink. It takes nothing before the stream is
// connected.
func (s *Stream) Write(now mono.Time, b []byte) (int, error) {
	bufs := [1][]byte{b}
	return s.Writev(now, bufs[:], false)
}

// Writev implements link.StreamLink. Each call begins a segment: nothing is held
// back to fill one, whether more follows or not.
func (s *Stream) Writev(_ mono.Time, bufs [][]byte, _ bool) (int, error) {
	switch {
	case s.err != nil:
		return 0, s.err
	case s.finQueued:
		return 0, link.ErrWriteClosed
	case !s.open || s.frozen():
		return 0, nil
	}
	all := 0
	for _, b := range bufs {
		all += len(b)
	}
	n := min(all, s.window)
	s.window -= n
	s.starved = s.starved || n < all
	from := gather{bufs: bufs, left: n}
	for from.left > 0 {
		s.transmit(s.cutSegment(&from))
	}
	return n, nil
}

// Read implements link.StreamLink. It returns bytes of one segment at a time:
// what arrived apart is read apart.
func (s *Stream) Read(_ mono.Time, b []byte) (int, error) {
	if len(b) == 0 || s.frozen() {
		return 0, nil
	}
	if s.in.len() == 0 {
		return 0, s.tell()
	}
	seg := *s.in.front()
	n := copy(b, seg.data[seg.read:])
	if seg.read += n; seg.read == len(seg.data) {
		s.net.releaseSegment(s.in.pop())
	}
	if s.peer != nil && s.err == nil {
		w := s.net.w
		w.At(w.now.Add(s.peer.returnLatency()), (*credit)(s.peer), uint64(n))
	}
	return n, nil
}

// tell says how the stream ended, if it has.
func (s *Stream) tell() error {
	switch {
	case s.err != nil:
		s.told = true
		s.leaveHost()
		return s.err
	case s.eof:
		s.told = true
		if s.finQueued {
			s.leaveHost()
		}
		return io.EOF
	}
	return nil
}

// frozen reports whether the host's process is stopped.
func (s *Stream) frozen() bool { return s.host != nil && s.port.frozen }

// leaveHost gives the stream's number back.
func (s *Stream) leaveHost() {
	if s.host != nil {
		s.host.release(s.id)
		s.host = nil
	}
}

// CloseWrite implements link.StreamLink.
func (s *Stream) CloseWrite(mono.Time) error {
	if s.err != nil {
		return s.err
	}
	if s.finQueued {
		return nil
	}
	s.finQueued = true
	if s.open {
		s.sendFin()
	}
	if s.told {
		s.leaveHost()
	}
	return nil
}

func (s *Stream) sendFin() {
	s.finSent = true
	s.transmit(s.newSegment(segmentFin))
	s.forgetIfDone()
}

// Abort implements link.StreamLink. What was not read is gone; what was written
// and is on its way still arrives before the reset.
func (s *Stream) Abort(mono.Time) error {
	s.leaveHost()
	if s.err != nil {
		return s.err
	}
	s.transmit(s.newSegment(segmentReset))
	for s.in.len() > 0 {
		s.net.releaseSegment(s.in.pop())
	}
	s.fail(link.ErrReset)
	return nil
}

// LocalAddr implements link.StreamLink.
func (s *Stream) LocalAddr() netip.AddrPort { return s.local }

// RemoteAddr implements link.StreamLink.
func (s *Stream) RemoteAddr() netip.AddrPort { return s.remote }

// MSS implements link.StreamLink.
func (s *Stream) MSS() int { return s.mss }

// fail breaks this end and tells its driver, in an event.
func (s *Stream) fail(err error) {
	if s.err != nil {
		return
	}
	s.err = err
	w := s.net.w
	w.Tracef("%s stream %v>%v broken: %v", s.port.cfg.Name, s.local, s.remote, err)
	for _, k := range []hook{s.readable, s.writable} {
		if k.h != nil {
			w.At(w.now, k.h, k.arg)
		}
	}
	s.forgetIfDone()
}

// forgetIfDone lets go of a stream that has nothing to do any more.
func (s *Stream) forgetIfDone() {
	if s.err == nil && !(s.eof && s.finSent) {
		return
	}
	if i := slices.Index(s.port.streams, s); i >= 0 {
		s.port.streams = slices.Delete(s.port.streams, i, i+1)
	}
}

func (p *Port) closeStreams() {
	for len(p.streams) > 0 {
		_ = p.streams[len(p.streams)-1].Abort(p.net.w.now) // removes it from the list
	}
	for len(p.listening) > 0 {
		_ = p.listening[0].Close() // so does this
	}
}

// credit is a Stream to which its peer says that it has read arg bytes.
type credit Stream

func (h *credit) HandleEvent(now mono.Time, arg uint64) {
	s := (*Stream)(h)
	s.window += int(arg)
	// As TCP does, it waits for room that is worth it: else who writes into every
	// little room makes ever smaller segments, and they never grow again.
	if s.starved && s.window >= min(s.mss, s.net.cfg.Stream.BufferBytes/2) && s.err == nil {
		s.starved = false
		s.writable.call(now)
	}
}

// streamErr says which stream could not be made.
func streamErr(what string, a netip.AddrPort, err error) error {
	return fmt.Errorf("%s %v: %w", what, a, err)
}
