package interop

import (
	"net/netip"
	"sync"
	"time"
)

// Side counts the frames that one end of the connections has sent.
type Side struct {
	FPDUs      int
	BadCRCs    int // with a wrong CRC although one was agreed on
	DirtyPads  int // with a pad that is not zeros
	Terminates int
	Mangled    int // Terminates whose bits are in a wrong order
}

// TapReport counts the connections that a Monitor has seen.
type TapReport struct {
	Connections  int // accepted
	WithCRC      int // accepted with a CRC
	Rejected     int
	Ours, Theirs Side
	// Unread are connections that could not be read to the end: segments were missing,
	// markers were asked for, or the protocol was not iWARP.
	Unread int
}

// Monitor reads the iWARP connections to one TCP port and reports what is on the wire: whether
// a CRC was agreed on and is right, whether pads are zero, whether a Terminate has the layout
// of RFC 5040, whether a peer leaves the first frame unanswered. It is written from the RFCs
// alone and shares no code with the stacks. It does not read markers, which the kernel's
// soft-iWARP does not send. It is safe for concurrent use.
type Monitor struct {
	mu    sync.Mutex
	port  uint16
	conns map[[2]netip.AddrPort]*conn // by initiator and responder
}

// NewMonitor returns a Monitor of the connections to port.
func NewMonitor(port uint16) *Monitor {
	return &Monitor{port: port, conns: make(map[[2]netip.AddrPort]*conn)}
}

// conn is one connection. Its two directions are the initiator's and the responder's.
type conn struct {
	directions [2]direction
	crc        bool
	foreign    bool // markers, or not iWARP
	changed    time.Time
}

const (
	initiator = iota
	responder
)

// direction is what one end of a connection has sent.
type direction struct {
	stream
	start  start
	ready  bool // its start frame has been read
	counts Side
}

// Frame takes an Ethernet frame captured at now. It ignores frames of other ports.
func (m *Monitor) Frame(now time.Time, frame []byte) {
	s, ok := parseFrame(frame)
	if !ok || s.src.Port() != m.port && s.dst.Port() != m.port {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	from, key := initiator, [2]netip.AddrPort{s.src, s.dst}
	if s.dst.Port() != m.port {
		from, key = responder, [2]netip.AddrPort{s.dst, s.src}
	}
	c := m.conns[key]
	if c == nil {
		if s.flags&tcpSYN == 0 {
			return // it began before the capture
		}
		c = new(conn)
		m.conns[key] = c
	}
	c.add(now, from, &s)
}

// add takes a segment that the end from has sent.
func (c *conn) add(now time.Time, from int, s *segment) {
	sender, other := &c.directions[from], &c.directions[1-from]
	before := sender.next
	sender.add(s)
	if s.flags&tcpACK != 0 && other.begun {
		if int32(s.ack-other.acked) > 0 || other.acked == 0 {
			other.acked = s.ack
			c.changed = now
		}
	}
	if sender.next != before {
		c.changed = now
		c.read()
	}
}

// read reads the start frames, and when both are there the frames behind them: whether those
// have a CRC follows from the start frames.
func (c *conn) read() {
	for i, key := range []string{initiator: requestKey, responder: replyKey} {
		d := &c.directions[i]
		if d.ready || c.foreign {
			continue
		}
		s, n, ok := readStart(d.bytes, key)
		if !ok {
			c.foreign = true
		}
		if n > 0 {
			d.start, d.ready, d.bytes = s, true, d.bytes[n:]
		}
	}
	request, reply := &c.directions[initiator], &c.directions[responder]
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

// readFrames takes all whole frames off the stream and counts them; crc says that the CRC was agreed on.
func (d *direction) readFrames(crc bool) {
	for {
		f, n := readFPDU(d.bytes)
		if n == 0 {
			return
		}
		d.bytes = d.bytes[n:]
		d.counts.FPDUs++
		if crc && !f.crcRight() {
			d.counts.BadCRCs++
		}
		if !f.padClean() {
			d.counts.DirtyPads++
		}
		if control, ok := f.terminate(); ok {
			d.counts.Terminates++
			if mangled(control) {
				d.counts.Mangled++
			}
		}
	}
}

// accepted reports whether the responder accepted the connection.
func (c *conn) accepted() bool {
	return c.directions[initiator].ready && c.directions[responder].ready && c.directions[responder].start.flags&flagRejected == 0
}

// stalled reports whether the responder has had the initiator's frames for longer
// than timeout, has acknowledged them as TCP does, and has sent nothing since its
// reply.
func (c *conn) stalled(now time.Time, timeout time.Duration) bool {
	request, reply := &c.directions[initiator], &c.directions[responder]
	return c.accepted() && !c.foreign && request.counts.FPDUs > 0 && len(request.bytes) == 0 && request.whole() &&
		reply.counts.FPDUs == 0 && now.Sub(c.changed) > timeout
}

// Stalled reports whether a connection hangs: its initiator has sent frames, the
// responder's TCP has them, and nothing has come back, for longer than timeout.
func (m *Monitor) Stalled(now time.Time, timeout time.Duration) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.conns {
		if c.stalled(now, timeout) {
			return true
		}
	}
	return false
}

// Report returns what was seen, where ours is one of our addresses and the other
// end is theirs.
func (m *Monitor) Report(ours netip.Addr) TapReport {
	m.mu.Lock()
	defer m.mu.Unlock()
	var r TapReport
	for key, c := range m.conns {
		if c.foreign || c.directions[0].lost || c.directions[1].lost || len(c.directions[0].early)+len(c.directions[1].early) > 0 {
			r.Unread++
		}
		switch {
		case c.accepted():
			r.Connections++
			if c.crc {
				r.WithCRC++
			}
		case c.directions[responder].ready:
			r.Rejected++
		}
		for i := range c.directions {
			if key[i].Addr() == ours {
				r.Ours.add(c.directions[i].counts)
			} else {
				r.Theirs.add(c.directions[i].counts)
			}
		}
	}
	return r
}

// add adds the counts of o.
func (s *Side) add(o Side) {
	s.FPDUs += o.FPDUs
	s.BadCRCs += o.BadCRCs
	s.DirtyPads += o.DirtyPads
	s.Terminates += o.Terminates
	s.Mangled += o.Mangled
}
