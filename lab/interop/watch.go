package interop

import (
	"net/netip"
	"sync"
	"time"
)

// Side is what one end of the connections has sent.
type Side struct {
	FPDUs int
	// BadCRCs are frames whose CRC is wrong although one was agreed on.
	BadCRCs int
	// DirtyPads are frames whose pad is not zeros.
	DirtyPads int
	// Terminates are all of them, Mangled those laid out wrongly.
	Terminates, Mangled int
}

// TapReport is what a Watch has seen.
type TapReport struct {
	// Connections are those that were agreed on; WithCRC, those with a CRC.
	Connections, WithCRC int
	Rejected             int
	Ours, Theirs         Side
	// Unread are connections that could not be read to the end: something was not
	// seen, markers were asked for, or it was not iWARP.
	Unread int
}

// Watch reads the iWARP connections to one TCP port and reports what is on the wire: whether
// a CRC was agreed on and is right, whether pads are zero, whether a Terminate has the layout
// of RFC 5040, whether a peer leaves the first frame unanswered. It is written from the RFCs
// alone and shares no code with the stacks. It does not read markers, which the kernel's
// soft-iWARP does not send. It is safe for concurrent use.
type Watch struct {
	mu    sync.Mutex
	port  uint16
	conns map[[2]netip.AddrPort]*conn // by initiator and responder
}

// NewWatch returns a Watch of the connections to port.
func NewWatch(port uint16) *Watch {
	return &Watch{port: port, conns: make(map[[2]netip.AddrPort]*conn)}
}

// conn is one connection. Its two directions are the initiator's and the responder's.
type conn struct {
	ways    [2]way
	crc     bool
	foreign bool // markers, or not iWARP
	changed time.Time
}

const (
	initiator = iota
	responder
)

type way struct {
	stream
	start  start
	ready  bool // its start frame has been read
	counts Side
}

// Frame takes an Ethernet frame seen at now; others than the Watch's are let pass.
func (w *Watch) Frame(now time.Time, frame []byte) {
	s, ok := parseFrame(frame)
	if !ok || s.src.Port() != w.port && s.dst.Port() != w.port {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	from, key := initiator, [2]netip.AddrPort{s.src, s.dst}
	if s.dst.Port() != w.port {
		from, key = responder, [2]netip.AddrPort{s.dst, s.src}
	}
	c := w.conns[key]
	if c == nil {
		if s.flags&tcpSYN == 0 {
			return // it began before us
		}
		c = new(conn)
		w.conns[key] = c
	}
	c.add(now, from, &s)
}

func (c *conn) add(now time.Time, from int, s *segment) {
	mine, other := &c.ways[from], &c.ways[1-from]
	before := mine.next
	mine.add(s)
	if s.flags&tcpACK != 0 && other.begun {
		if int32(s.ack-other.acked) > 0 || other.acked == 0 {
			other.acked = s.ack
			c.changed = now
		}
	}
	if mine.next != before {
		c.changed = now
		c.read()
	}
}

// read reads what is whole, in both directions: the initiator's frames can be
// judged when the reply has come.
func (c *conn) read() {
	for i, key := range []string{initiator: requestKey, responder: replyKey} {
		w := &c.ways[i]
		if w.ready || c.foreign {
			continue
		}
		s, n, ok := readStart(w.bytes, key)
		if !ok {
			c.foreign = true
		}
		if n > 0 {
			w.start, w.ready, w.bytes = s, true, w.bytes[n:]
		}
	}
	request, reply := &c.ways[initiator], &c.ways[responder]
	if c.foreign || !request.ready || !reply.ready {
		return
	}
	c.crc = (request.start.flags|reply.start.flags)&flagCRC != 0
	if (request.start.flags|reply.start.flags)&flagMarkers != 0 {
		c.foreign = true
		return
	}
	request.readFrames(c.crc)
	reply.readFrames(c.crc)
}

func (w *way) readFrames(crc bool) {
	for {
		f, n := readFPDU(w.bytes)
		if n == 0 {
			return
		}
		w.bytes = w.bytes[n:]
		w.counts.FPDUs++
		if crc && !f.crcRight() {
			w.counts.BadCRCs++
		}
		if !f.padClean() {
			w.counts.DirtyPads++
		}
		if control, ok := f.terminate(); ok {
			w.counts.Terminates++
			if mangled(control) {
				w.counts.Mangled++
			}
		}
	}
}

// agreed reports whether the connection was accepted.
func (c *conn) agreed() bool {
	return c.ways[initiator].ready && c.ways[responder].ready && c.ways[responder].start.flags&flagRejected == 0
}

// stalled reports whether the responder has had the initiator's frames for longer
// than patience, has acknowledged them as TCP does, and has sent nothing since its
// reply.
func (c *conn) stalled(now time.Time, patience time.Duration) bool {
	request, reply := &c.ways[initiator], &c.ways[responder]
	return c.agreed() && !c.foreign && request.counts.FPDUs > 0 && len(request.bytes) == 0 && request.whole() &&
		reply.counts.FPDUs == 0 && now.Sub(c.changed) > patience
}

// Stalled reports whether a connection hangs: its initiator has sent frames, the
// responder's TCP has them, and nothing has come back, for longer than patience.
func (w *Watch) Stalled(now time.Time, patience time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.conns {
		if c.stalled(now, patience) {
			return true
		}
	}
	return false
}

// Report returns what was seen, where ours is one of our addresses and the other
// end is theirs.
func (w *Watch) Report(ours netip.Addr) TapReport {
	w.mu.Lock()
	defer w.mu.Unlock()
	var r TapReport
	for key, c := range w.conns {
		if c.foreign || c.ways[0].lost || c.ways[1].lost || len(c.ways[0].early)+len(c.ways[1].early) > 0 {
			r.Unread++
		}
		switch {
		case c.agreed():
			r.Connections++
			if c.crc {
				r.WithCRC++
			}
		case c.ways[responder].ready:
			r.Rejected++
		}
		for i := range c.ways {
			if key[i].Addr() == ours {
				r.Ours.add(c.ways[i].counts)
			} else {
				r.Theirs.add(c.ways[i].counts)
			}
		}
	}
	return r
}

func (s *Side) add(o Side) {
	s.FPDUs += o.FPDUs
	s.BadCRCs += o.BadCRCs
	s.DirtyPads += o.DirtyPads
	s.Terminates += o.Terminates
	s.Mangled += o.Mangled
}
