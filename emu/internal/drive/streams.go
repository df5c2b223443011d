package drive

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

const (
	// readBytes is the size of the read buffer: small enough to stay in the
	// processor's cache until the engine has read it twice.
	readBytes = 128 << 10
	// writeVectors bounds the buffers of one write. A framing engine uses about three per frame.
	writeVectors = 256
	// writeBytes bounds the bytes that one stream writes before the next stream does,
	// and with them the time for which the device is locked.
	writeBytes = 1 << 20
	// maxAccepts bounds the streams that one listener accepts before other work.
	maxAccepts = 64
)

// Streams moves bytes between a StreamEngine and the streams of a StreamNet, in real and in
// simulated time. All methods are called under the driver's lock.
type Streams struct {
	engine   StreamEngine
	net      link.StreamNet
	slots    []slot // by StreamID
	byConn   map[StreamConn]*stream
	lastFind *stream // last result of find
	ready    [BatchSize]link.StreamReady
	buf      []byte
	vecs     [][]byte

	readQueue   []*stream   // streams that may have unread bytes, or whose write failed
	acceptQueue []*listener // listeners that may have more to accept
	writeQueue  []*stream   // streams that may write again
}

type slot struct {
	stream   *stream
	listener *listener
}

// stream is one stream of the net with the engine's conn for it.
type stream struct {
	conn StreamConn
	link link.StreamLink
	id   link.StreamID

	connected   bool
	blocked     bool // the link is full
	corked      bool // the last segment waits for the next write
	readClosed  bool // InputEOF was called
	writeClosed bool // CloseWrite was called
	writeFailed bool // a read will tell why
	removed     bool

	readQueued, writeQueued bool // in the queue of that name
}

// NewStreams returns Streams that carry the connections of e over streams of n.
func NewStreams(e StreamEngine, n link.StreamNet) *Streams {
	return &Streams{
		engine: e, net: n, byConn: make(map[StreamConn]*stream),
		buf: make([]byte, readBytes), vecs: make([][]byte, 0, writeVectors),
	}
}

// Dial starts a stream for conn, which must not have one yet.
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

// add adds a stream for conn.
func (s *Streams) add(conn StreamConn, l link.StreamLink) *stream {
	st := &stream{conn: conn, link: l, id: l.ID()}
	s.slot(st.id).stream = st
	s.byConn[conn] = st
	return st
}

// slot returns the entry of a stream or listener, which it makes if needed.
func (s *Streams) slot(id link.StreamID) *slot {
	for int(id) >= len(s.slots) {
		s.slots = append(s.slots, slot{})
	}
	return &s.slots[id]
}

// find returns the stream of conn; nil if conn has no stream. It caches the last result.
func (s *Streams) find(conn StreamConn) *stream {
	if s.lastFind == nil || s.lastFind.conn != conn {
		s.lastFind = s.byConn[conn]
	}
	return s.lastFind
}

// remove forgets a stream that has ended.
func (s *Streams) remove(st *stream) {
	st.removed = true
	if at := s.slot(st.id); at.stream == st {
		at.stream = nil
	}
	delete(s.byConn, st.conn)
	if s.lastFind == st {
		s.lastFind = nil
	}
}

// OpenStreams returns the number of streams.
func (s *Streams) OpenStreams() int { return len(s.byConn) }

// listener is a StreamListener.
type listener struct {
	streams *Streams
	link    link.StreamListener
	accept  func(remote netip.AddrPort) StreamConn
	queued  bool // in acceptQueue
	closed  bool
}

// Listen accepts streams to addr. accept returns the conn of a new stream, or nil to reset it.
func (s *Streams) Listen(addr netip.AddrPort, backlog int, accept func(remote netip.AddrPort) StreamConn) (StreamListener, error) {
	l, err := s.net.Listen(addr, backlog)
	if err != nil {
		return nil, err
	}
	accepting := &listener{streams: s, link: l, accept: accept}
	s.slot(l.ID()).listener = accepting
	return accepting, nil
}

// Addr implements StreamListener.
func (l *listener) Addr() netip.AddrPort { return l.link.Addr() }

// Close implements StreamListener.
func (l *listener) Close() error {
	if l.closed {
		return fmt.Errorf("close of the listener on %v: %w", l.link.Addr(), link.ErrClosed)
	}
	l.closed = true
	l.streams.slot(l.link.ID()).listener = nil
	return l.link.Close()
}

// Receive passes received bytes to the engine, one read of each ready stream, and accepts streams.
// It reports whether anything happened, and whether more may be left.
func (s *Streams) Receive(now mono.Time) (received, more bool) {
	if len(s.readQueue)+len(s.acceptQueue) > 0 {
		received = s.continueQueued(now)
	}
	n := s.net.Ready(s.ready[:])
	for i := range s.ready[:n] {
		if s.handleReady(now, &s.ready[i]) {
			received = true
		}
	}
	return received, n == len(s.ready) || len(s.readQueue)+len(s.acceptQueue) > 0
}

// continueQueued reads once more from each queued stream, and accepts from each queued listener. It
// reports whether there were bytes or connections.
func (s *Streams) continueQueued(now mono.Time) (received bool) {
	handleQueue(&s.readQueue, func(st *stream) {
		if st.readQueued = false; !st.removed && s.read(now, st) {
			received = true
		}
	})
	handleQueue(&s.acceptQueue, func(l *listener) {
		if l.queued = false; !l.closed && s.acceptWaiting(now, l) {
			received = true
		}
	})
	return received
}

// handleQueue calls handle for the entries of a queue and removes them. Entries that handle adds
// stay in the queue.
func handleQueue[T any](queue *[]*T, handle func(*T)) {
	n := len(*queue)
	for i := range n {
		handle((*queue)[i])
	}
	*queue = slices.Delete(*queue, 0, n)
}

// handleReady handles a readiness event of a stream or a listener: it accepts, connects, queues
// output or reads. It reports whether it did any of them.
func (s *Streams) handleReady(now mono.Time, r *link.StreamReady) (received bool) {
	at := s.slot(r.ID)
	if at.listener != nil {
		return s.acceptWaiting(now, at.listener)
	}
	st := at.stream
	if st == nil {
		return false
	}
	if !st.connected && st.link.Connected(now) {
		s.connect(now, st)
		received = true
	}
	if r.Writable && st.blocked {
		st.blocked = false
		s.queueWrite(st)
		received = true
	}
	if st.readQueued { // the stream was read in this call already, or will be in the next
		return received
	}
	return s.read(now, st) || received
}

// connect calls Connected of the conn whose stream is established, and queues its output.
func (s *Streams) connect(now mono.Time, st *stream) {
	st.connected = true
	st.conn.Connected(now, st.link.LocalAddr(), st.link.RemoteAddr(), st.link.MSS())
	s.queueWrite(st)
}

// queueWrite makes the next Flush write the stream's output.
func (s *Streams) queueWrite(st *stream) {
	if !st.writeQueued {
		st.writeQueued = true
		s.writeQueue = append(s.writeQueue, st)
	}
}

// queueRead makes the next Receive read from the stream.
func (s *Streams) queueRead(st *stream) {
	if !st.readQueued {
		st.readQueued = true
		s.readQueue = append(s.readQueue, st)
	}
}

// read passes the bytes of one read, the end of the stream or the error to the conn. It queues
// another read if there may be more. It reports whether there was something to pass.
func (s *Streams) read(now mono.Time, st *stream) (received bool) {
	n, err := st.link.Read(now, s.buf)
	if n == 0 && err == nil {
		return false
	}
	if n > 0 {
		if !st.connected { // connected since handleReady asked
			s.connect(now, st)
		}
		st.conn.Input(now, s.buf[:n])
	}
	switch {
	case err == nil:
		if n == len(s.buf) || st.writeFailed { // after a failed write, a later read returns the error
			s.queueRead(st)
		}
	case errors.Is(err, io.EOF):
		if st.readClosed {
			return n > 0
		}
		st.readClosed = true
		st.conn.InputEOF(now)
		if st.writeClosed {
			s.remove(st)
		}
	default:
		s.remove(st)
		st.conn.Failed(now, err)
	}
	return true
}

// acceptWaiting accepts the streams that wait, up to maxAccepts, and queues the listener if there
// may be more. It reports whether it accepted any.
func (s *Streams) acceptWaiting(now mono.Time, l *listener) (received bool) {
	for range maxAccepts {
		stream, err := l.link.Accept(now)
		if err != nil || stream == nil {
			return received
		}
		received = true
		conn := l.accept(stream.RemoteAddr())
		if conn == nil {
			_ = stream.Abort(now) // the stream may have broken before
			continue
		}
		s.connect(now, s.add(conn, stream))
	}
	if !l.queued && !l.closed {
		l.queued = true
		s.acceptQueue = append(s.acceptQueue, l)
	}
	return received
}
