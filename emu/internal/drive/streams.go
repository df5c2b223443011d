package drive

import (
	"errors"
	"fmt"
	"io"
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

const (
	// readBytes is what one read of a stream may bring: as much as stays in a
	// processor's cache until the engine has looked at it twice.
	readBytes = 128 << 10
	// writeVectors bounds one write. An engine that frames what it sends gives
	// about three a frame.
	writeVectors = 256
	// writeBytes bounds what one stream is given before others have their turn, and
	// with it the time for which the device is locked.
	writeBytes = 1 << 20
	// accepts bounds how many streams of a listener are taken before others have
	// their turn.
	accepts = 64
)

// Streams moves bytes between a StreamEngine and the streams of a net. It is
// the part of a StreamDriver that is the same in every world, and is called
// under the driver's lock.
type Streams struct {
	engine StreamEngine
	net    link.StreamNet
	slots  []slot // by the number of the stream or the listener
	byConn map[StreamConn]*stream
	last   *stream // that byConn was asked for
	ready  [BatchSize]link.StreamReady
	buf    []byte
	vecs   [][]byte

	unread  []*stream   // whose last read may have left something, or whose write failed
	crowded []*listener // that may have more to accept
	retry   []*stream   // that may be able to write again
}

type slot struct {
	stream   *stream
	listener *listener
}

// stream is one of an engine's conns with what carries it.
type stream struct {
	conn StreamConn
	link link.StreamLink
	id   link.StreamID

	connected  bool
	blocked    bool // the link took less than was there
	corked     bool // the last segment waits for the next write
	readEnded  bool // InputEOF was said
	writeEnded bool // StreamClose was done
	broken     bool // a write failed; a read will say why
	gone       bool

	unread, retry bool // in the list of that name
}

// NewStreams returns the streams of e, of which there are none yet, on n.
func NewStreams(e StreamEngine, n link.StreamNet) *Streams {
	return &Streams{
		engine: e, net: n, byConn: make(map[StreamConn]*stream),
		buf: make([]byte, readBytes), vecs: make([][]byte, 0, writeVectors),
	}
}

// Dial starts a stream for conn.
func (s *Streams) Dial(now mono.Time, conn StreamConn, local, remote netip.AddrPort) error {
	if s.byConn[conn] != nil {
		return fmt.Errorf("dial to %v: the connection has a stream already", remote)
	}
	l, err := s.net.Dial(now, local, remote)
	if err != nil {
		return err
	}
	s.add(conn, l)
	return nil
}

func (s *Streams) add(conn StreamConn, l link.StreamLink) *stream {
	st := &stream{conn: conn, link: l, id: l.ID()}
	s.slot(st.id).stream = st
	s.byConn[conn] = st
	return st
}

func (s *Streams) slot(id link.StreamID) *slot {
	for int(id) >= len(s.slots) {
		s.slots = append(s.slots, slot{})
	}
	return &s.slots[id]
}

func (s *Streams) find(conn StreamConn) *stream {
	if s.last == nil || s.last.conn != conn {
		s.last = s.byConn[conn]
	}
	return s.last
}

// forget ends what the driver has to do with a stream, whose link holds nothing
// any more.
func (s *Streams) forget(st *stream) {
	st.gone = true
	if at := s.slot(st.id); at.stream == st {
		at.stream = nil
	}
	delete(s.byConn, st.conn)
	if s.last == st {
		s.last = nil
	}
}

// Open returns how many streams there are.
func (s *Streams) OpenStreams() int { return len(s.byConn) }

// listener hands what it accepts to an engine.
type listener struct {
	streams *Streams
	link    link.StreamListener
	accept  func(remote netip.AddrPort) StreamConn
	crowded bool // in the list of that name
	closed  bool
}

// Listen takes the streams that are dialed to addr.
func (s *Streams) Listen(addr netip.AddrPort, backlog int, accept func(remote netip.AddrPort) StreamConn) (StreamListener, error) {
	l, err := s.net.Listen(addr, backlog)
	if err != nil {
		return nil, err
	}
	own := &listener{streams: s, link: l, accept: accept}
	s.slot(l.ID()).listener = own
	return own, nil
}

// Addr is the address listened on, with the port that was got.
func (l *listener) Addr() netip.AddrPort { return l.link.Addr() }

// Close stops listening.
func (l *listener) Close() error {
	if l.closed {
		return fmt.Errorf("close of the listener on %v: %w", l.link.Addr(), link.ErrClosed)
	}
	l.closed = true
	l.streams.slot(l.link.ID()).listener = nil
	return l.link.Close()
}

// TakeIn moves what has arrived into the engine: one read of each stream that
// has something. It reports whether anything had happened, and whether there may
// be more to do.
func (s *Streams) Receive(now mono.Time) (arrived, more bool) {
	if len(s.unread)+len(s.crowded) > 0 {
		arrived = s.lookAgain(now)
	}
	n := s.net.Ready(s.ready[:])
	for i := range s.ready[:n] {
		if s.look(now, &s.ready[i]) {
			arrived = true
		}
	}
	return arrived, n == len(s.ready) || len(s.unread)+len(s.crowded) > 0
}

// lookAgain takes one more read of each stream that was left with something.
func (s *Streams) lookAgain(now mono.Time) (arrived bool) {
	for i, k := 0, len(s.unread); i < k; i++ {
		st := s.unread[i]
		if st.unread = false; !st.gone && s.read(now, st) {
			arrived = true
		}
		s.unread[i] = nil
	}
	s.unread = dropNil(s.unread)
	for i, k := 0, len(s.crowded); i < k; i++ {
		l := s.crowded[i]
		if l.crowded = false; !l.closed && s.take(now, l) {
			arrived = true
		}
		s.crowded[i] = nil
	}
	s.crowded = dropNil(s.crowded)
	return arrived
}

// dropNil keeps what was added to a list while its first part was worked off.
func dropNil[T any](list []*T) []*T {
	kept := list[:0]
	for _, p := range list {
		if p != nil {
			kept = append(kept, p)
		}
	}
	return kept
}

// look does what a stream or a listener was named for.
func (s *Streams) look(now mono.Time, r *link.StreamReady) (arrived bool) {
	at := s.slot(r.ID)
	if at.listener != nil {
		return s.take(now, at.listener)
	}
	st := at.stream
	if st == nil {
		return false
	}
	if !st.connected && st.link.Connected(now) {
		s.connect(now, st)
		arrived = true
	}
	if r.Writable && st.blocked {
		st.blocked = false
		s.again(st)
		arrived = true
	}
	if st.unread { // its turn has been, or comes with the next call
		return arrived
	}
	return s.read(now, st) || arrived
}

// connect says that a stream is there, and has what waits for it written.
func (s *Streams) connect(now mono.Time, st *stream) {
	st.connected = true
	st.conn.Connected(now, st.link.LocalAddr(), st.link.RemoteAddr(), st.link.MSS())
	s.again(st)
}

// again has the stream's output asked for by the next Flush.
func (s *Streams) again(st *stream) {
	if !st.retry {
		st.retry = true
		s.retry = append(s.retry, st)
	}
}

func (s *Streams) readAgain(st *stream) {
	if !st.unread {
		st.unread = true
		s.unread = append(s.unread, st)
	}
}

// read moves what one read brings into the engine.
func (s *Streams) read(now mono.Time, st *stream) (arrived bool) {
	n, err := st.link.Read(now, s.buf)
	if n == 0 && err == nil {
		return false
	}
	if n > 0 {
		if !st.connected { // only just
			s.connect(now, st)
		}
		st.conn.Input(now, s.buf[:n])
	}
	switch {
	case err == nil:
		if n == len(s.buf) || st.broken {
			s.readAgain(st)
		}
	case errors.Is(err, io.EOF):
		if st.readEnded {
			return n > 0
		}
		st.readEnded = true
		st.conn.InputEOF(now)
		if st.writeEnded {
			s.forget(st)
		}
	default:
		s.forget(st)
		st.conn.Failed(now, err)
	}
	return true
}

// take accepts what waits.
func (s *Streams) take(now mono.Time, l *listener) (arrived bool) {
	for range accepts {
		stream, err := l.link.Accept(now)
		if err != nil || stream == nil {
			return arrived
		}
		arrived = true
		conn := l.accept(stream.RemoteAddr())
		if conn == nil {
			_ = stream.Abort(now) // it may have broken meanwhile
			continue
		}
		s.connect(now, s.add(conn, stream))
	}
	if !l.crowded && !l.closed {
		l.crowded = true
		s.crowded = append(s.crowded, l)
	}
	return arrived
}
