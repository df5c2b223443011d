package sim

import (
	"fmt"
	"io"
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// Stream is one end of a byte stream: a link.StreamLink.
type Stream struct {
	net           *Net
	port          *Port
	peer          *Stream // nil until the listener has accepted
	local, remote netip.AddrPort
	mss           int
	conn          int // number of the stream in the Net, in order of dialing
	open          bool
	err           error // set when the stream has failed

	streamReceiver
	streamSender
	streamPath

	host               *StreamHost // nil if created without a StreamHost
	id                 link.StreamID
	readable, writable callback
}

// streamReceiver is the state of the bytes that arrive.
type streamReceiver struct {
	in          nic.FIFO[*segment] // arrived, not read
	rcvNxt      uint64             // RCV.NXT, as in link.Segment
	eof         bool               // the peer's FIN has arrived
	endReported bool               // Read has returned io.EOF or err
}

// streamSender is the state of the bytes that are written.
type streamSender struct {
	window       int    // send window in bytes
	writeBlocked bool   // a write did not fit in the window
	written      uint64 // bytes
	acceptedAt   mono.Time
	finQueued    bool // CloseWrite was called
	finSent      bool
	events       []StreamEvent // remaining events of this direction, by offset
	rands        streamRands
}

// streamPath is the state of the segments between the two ports.
type streamPath struct {
	// Arrival of the last segment at the sender's switch, at the peer's port, and after each trunk.
	switchArrival, portArrival mono.Time
	hopArrival                 [maxStreamHops]mono.Time

	held       nic.FIFO[*segment] // waiting at the peer's port for retransmission
	attempts   int                // retransmissions of the first of them
	retryTimer Timer
}

var _ link.StreamLink = (*Stream)(nil)

// OnReadable sets a handler. The simulator calls h with arg when bytes or a FIN have arrived, or the
// stream has failed.
func (s *Stream) OnReadable(h Handler, arg uint64) { s.readable = callback{h, arg} }

// OnWritable sets a handler. The simulator calls h with arg when the stream is connected or has
// failed, or when its send window has space again for a segment or half of its buffer.
func (s *Stream) OnWritable(h Handler, arg uint64) { s.writable = callback{h, arg} }

// Connected reports whether the peer has accepted the stream.
func (s *Stream) Connected(mono.Time) bool { return s.open }

// ID implements link.StreamLink. It is 0 unless a StreamHost made the stream.
func (s *Stream) ID() link.StreamID { return s.id }

// Write implements link.StreamLink. It accepts no bytes before the stream is connected.
func (s *Stream) Write(now mono.Time, b []byte) (int, error) {
	const more = false
	bufs := [1][]byte{b}
	return s.Writev(now, bufs[:], more)
}

// Writev implements link.StreamLink. Each call starts a segment: partial segments are sent at once,
// as with TCP_NODELAY, even if the caller has more to write.
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
	s.writeBlocked = s.writeBlocked || n < all
	from := gatherList{bufs: bufs, left: n}
	for from.left > 0 {
		s.transmit(s.cutSegment(&from))
	}
	return n, nil
}

// AcceptedAt implements link.StreamLink. The kernel has copied the bytes when they leave its stack;
// a NIC without a stack above it has read them from memory when its send unit is done with them.
func (s *Stream) AcceptedAt() mono.Time { return s.acceptedAt }

// Read implements link.StreamLink. It returns bytes of at most one segment.
func (s *Stream) Read(_ mono.Time, b []byte) (int, error) {
	if len(b) == 0 || s.frozen() {
		return 0, nil
	}
	if s.in.Len() == 0 {
		return 0, s.reportEnd()
	}
	seg := *s.in.First()
	n := copy(b, seg.data[seg.readBytes:])
	if seg.readBytes += n; seg.readBytes == len(seg.data) {
		s.in.Pop()
		s.net.releaseSegment(seg)
	}
	if s.peer != nil && s.err == nil { // the peer may write n more bytes when it learns of this
		w := s.net.w
		w.At(w.now.Add(s.peer.returnLatency()), (*windowUpdate)(s.peer), uint64(n))
	}
	return n, nil
}

// reportEnd returns the error or io.EOF that ended the stream, nil if it is open, and records that
// it was reported. It releases the ID of a stream that failed or ended in both directions.
func (s *Stream) reportEnd() error {
	switch {
	case s.err != nil:
		s.endReported = true
		s.releaseID()
		return s.err
	case s.eof:
		s.endReported = true
		if s.finQueued {
			s.releaseID()
		}
		return io.EOF
	}
	return nil
}

// frozen reports whether Port.Freeze suspends the stream.
func (s *Stream) frozen() bool { return s.host != nil && s.port.frozen }

// releaseID removes the stream from its StreamHost.
func (s *Stream) releaseID() {
	if s.host != nil {
		s.host.freeID(s.id)
		s.host = nil
	}
}

// CloseWrite implements link.StreamLink. It defers the FIN until the stream is connected.
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
	if s.endReported {
		s.releaseID()
	}
	return nil
}

// sendFin sends the FIN of CloseWrite.
func (s *Stream) sendFin() {
	s.finSent = true
	s.transmit(s.newSegment(segmentFin))
	s.removeIfDone()
}

// Abort implements link.StreamLink. Unread bytes are lost; written bytes arrive before the reset.
func (s *Stream) Abort(mono.Time) error {
	s.releaseID()
	if s.err != nil {
		return s.err
	}
	s.transmit(s.newSegment(segmentReset))
	s.net.releaseAll(&s.in)
	s.fail(link.ErrReset)
	return nil
}

// LocalAddr implements link.StreamLink.
func (s *Stream) LocalAddr() netip.AddrPort { return s.local }

// RemoteAddr implements link.StreamLink.
func (s *Stream) RemoteAddr() netip.AddrPort { return s.remote }

// MSS implements link.StreamLink.
func (s *Stream) MSS() int { return s.mss }

// fail ends the stream at this side with an error, unless an error has ended it before. It schedules
// the callbacks for reading and writing, which find the error.
func (s *Stream) fail(err error) {
	if s.err != nil {
		return
	}
	s.err = err
	w := s.net.w
	w.Tracef("%s stream %v>%v broken: %v", s.port.cfg.Name, s.local, s.remote, err)
	s.readable.schedule(w)
	s.writable.schedule(w)
	s.removeIfDone()
}

// removeIfDone removes a stream from its port once both directions are closed or it has failed.
func (s *Stream) removeIfDone() {
	if s.err == nil && !(s.eof && s.finSent) {
		return
	}
	s.port.streams = remove(s.port.streams, s)
}

// windowUpdate is a Stream as the handler of a window update: the peer has read arg bytes.
type windowUpdate Stream

// HandleEvent implements Handler: the writer learns that its peer has read arg bytes.
func (h *windowUpdate) HandleEvent(now mono.Time, arg uint64) {
	s := (*Stream)(h)
	s.window += int(arg)
	// Sender-side silly window avoidance (RFC 1122): wait for a full segment or
	// half of the buffer.
	if s.writeBlocked && s.window >= min(s.mss, s.net.cfg.Stream.BufferBytes/2) && s.err == nil {
		s.writeBlocked = false
		s.writable.call(now)
	}
}

func addrError(what string, a netip.AddrPort, err error) error {
	return fmt.Errorf("%s %v: %w", what, a, err)
}
