package capture

import (
	"fmt"
	"net/netip"
	"slices"
)

// connKey is a TCP connection at one interface, whichever way a packet goes.
type connKey struct {
	iface int
	a, b  netip.AddrPort // a is the lesser
}

// conn is a connection: one half for each direction, that of a first.
type conn struct {
	half [2]half
}

// half is one direction of a connection.
type half struct {
	begun bool
	next  uint32 // sequence number of the next octet
	held  []segment
	// heldLen counts the octets in held.
	heldLen int
	// passed says that the receiver has acknowledged what is missing before
	// held: it was sent, and the capture does not have it.
	passed bool

	acked   bool
	lastAck uint32
	lastWin uint16

	mpa mpaHalf
}

// segment is a piece of a stream that waits for what comes before it.
type segment struct {
	seq     uint32
	data    []byte
	missing int // octets after data that were not recorded
}

func (g *segment) len() int { return len(g.data) + g.missing }

// Bounds on what waits in one direction.
const (
	maxHeldSegments = 256
	maxHeldOctets   = 1 << 20
)

// dissectTCP decodes a segment and hands the octets that are in order to MPA.
func (s *Stream) dissectTCP(b []byte) {
	p := &s.p
	p.Protocol = "TCP"
	payload, problem := p.TCP.parse(b, p.IP.Length)
	if problem != "" {
		p.Note = problem
		if p.Truncated() == 0 {
			p.mark(MarkMalformed, problem)
		}
		return
	}
	t := &p.TCP
	p.Note = fmt.Sprintf("%s seq %d", t.FlagNames(), t.Seq)
	if t.Flags&FlagACK != 0 {
		p.Note += fmt.Sprintf(" ack %d", t.Ack)
	}
	if t.Length > 0 {
		p.Note += fmt.Sprintf(" %d B", t.Length)
	}
	c, from := s.connection()
	out, back := &c.half[from], &c.half[1-from]
	out.acknowledge(p, back)
	if t.Flags&FlagRST != 0 {
		p.mark(MarkRejected, "TCP reset")
	}
	if t.Flags&FlagSYN != 0 {
		s.begin(out)
		return
	}
	if t.Length > 0 {
		s.segment(out, back, segment{t.Seq, payload, t.Length - len(payload)})
	}
	if len(p.PDUs) > 0 {
		p.Note = ""
	}
}

// connection returns what is known of the packet's connection, and which half
// of it the packet belongs to.
func (s *Stream) connection() (c *conn, from int) {
	a, b := s.p.Src(), s.p.Dst()
	if b.Compare(a) < 0 {
		a, b, from = b, a, 1
	}
	return s.conns.get(connKey{s.p.Interface.Index, a, b}), from
}

// begin takes a SYN: whatever was known is of an older connection.
func (s *Stream) begin(h *half) {
	next := s.p.TCP.Seq + 1
	if h.begun && h.next == next {
		s.p.mark(MarkRetransmission, "SYN has been seen")
		return
	}
	s.held -= h.heldLen
	*h = half{begun: true, next: next, mpa: mpaHalf{state: mpaStart}}
}

// acknowledge looks at what a segment says of the other direction.
func (h *half) acknowledge(p *Packet, back *half) {
	t := &p.TCP
	if t.Flags&FlagACK == 0 || t.Flags&(FlagSYN|FlagRST) != 0 {
		return
	}
	if len(back.held) > 0 && int32(t.Ack-back.held[0].seq) >= 0 {
		back.passed = true
	}
	pending := back.begun && (int32(back.next-t.Ack) > 0 || len(back.held) > 0)
	if h.acked && t.Ack == h.lastAck && t.Window == h.lastWin && t.Length == 0 && t.Flags&FlagFIN == 0 && pending {
		p.mark(MarkDuplicateAck, fmt.Sprintf("TCP acknowledges %d again", t.Ack))
	}
	h.acked, h.lastAck, h.lastWin = true, t.Ack, t.Window
}

// segment takes a segment with data: in order, early, or not for the first
// time.
func (s *Stream) segment(h, back *half, g segment) {
	p := &s.p
	if !h.begun { // the capture began later than the connection
		h.begun, h.next = true, g.seq
		h.mpa.state = mpaLost
	}
	if h.passed {
		s.giveUp(h, back)
	}
	switch ahead := int(int32(g.seq - h.next)); { // of an int32, the least number has no opposite
	case ahead < 0 && -ahead >= g.len():
		p.mark(MarkRetransmission, fmt.Sprintf("TCP octets %d-%d have been seen", g.seq, g.seq+uint32(g.len())-1))
		return
	case ahead < 0:
		p.mark(MarkRetransmission, fmt.Sprintf("the first %d TCP octets have been seen", -ahead))
		g.trim(-ahead)
	case ahead > 0:
		s.hold(h, back, g, ahead)
		return
	}
	if len(h.held) > 0 {
		p.mark(MarkOutOfOrder, "fills a gap before TCP octet "+fmt.Sprint(h.held[0].seq))
	}
	s.consume(h, back, g)
	s.drain(h, back)
}

// trim drops the first n octets.
func (g *segment) trim(n int) {
	g.seq += uint32(n)
	kept := min(n, len(g.data))
	g.data, g.missing = g.data[kept:], g.missing-(n-kept)
}

// hold keeps a segment for which it is too early.
func (s *Stream) hold(h, back *half, g segment, ahead int) {
	i, again := slices.BinarySearchFunc(h.held, g.seq, func(e segment, seq uint32) int { return int(int32(e.seq - seq)) })
	switch {
	case again && h.held[i].len() >= g.len():
		s.p.mark(MarkRetransmission, fmt.Sprintf("TCP octets %d-%d have been seen", g.seq, g.seq+uint32(g.len())-1))
		return
	case i < len(h.held): // an earlier gap than the last
		s.p.mark(MarkOutOfOrder, fmt.Sprintf("TCP octets come before those of %d", h.held[i].seq))
	default:
		s.p.mark(MarkGap, fmt.Sprintf("TCP octets are missing before it, %d of them up to here", ahead))
	}
	g.data = slices.Clone(g.data)
	h.held = slices.Insert(h.held, i, g)
	h.heldLen += len(g.data)
	s.held += len(g.data)
	if len(h.held) > maxHeldSegments || h.heldLen > maxHeldOctets || s.held > maxHeld {
		s.giveUp(h, back)
		s.drain(h, back)
	}
}

// giveUp goes on after a gap that will not be filled.
func (s *Stream) giveUp(h, back *half) {
	h.passed = false
	if len(h.held) == 0 {
		return
	}
	missing := h.held[0].seq - h.next
	s.p.mark(MarkMissingData, fmt.Sprintf("%d TCP octets are not in the capture", missing))
	s.skip(h, back, int(missing))
	h.next = h.held[0].seq
	s.drain(h, back)
}

// drain consumes what waited and is now in order.
func (s *Stream) drain(h, back *half) {
	for len(h.held) > 0 {
		g := h.held[0]
		ahead := int32(g.seq - h.next)
		if ahead > 0 {
			return
		}
		h.heldLen -= len(g.data)
		s.held -= len(g.data)
		h.held = slices.Delete(h.held, 0, 1)
		if int(-ahead) < g.len() {
			g.trim(int(-ahead))
			s.consume(h, back, g)
		}
	}
}

// consume hands octets in order to MPA.
func (s *Stream) consume(h, back *half, g segment) {
	h.next = g.seq + uint32(g.len())
	s.feed(h, back, g)
	if g.missing > 0 {
		s.skip(h, back, g.missing)
	}
}
