package capture

import (
	"fmt"
	"net/netip"
	"slices"
)

// connKey identifies a TCP connection at one interface, for both directions.
type connKey struct {
	iface int
	a, b  netip.AddrPort // a < b
}

// conn is a TCP connection; directions[0] is from a to b.
type conn struct {
	directions [2]tcpDirection
}

// tcpDirection reassembles one direction of a connection.
type tcpDirection struct {
	started    bool
	next       uint32 // sequence number of the next octet
	outOfOrder []segment
	// outOfOrderLen is the number of octets in outOfOrder.
	outOfOrderLen int
	// gapAcked: the receiver has acknowledged the octets missing before outOfOrder,
	// so they were sent but not captured.
	gapAcked bool

	hasAck  bool
	lastAck uint32
	lastWin uint16

	mpa mpaDirection
}

// segment is the payload of a TCP segment.
type segment struct {
	seq     uint32
	data    []byte
	missing int // octets after data that were not captured
}

func (g *segment) len() int { return len(g.data) + g.missing }

// Bounds on the reassembly queue of one direction.
const (
	maxOutOfOrderSegments = 256
	maxOutOfOrderOctets   = 1 << 20
)

// dissectTCP decodes a segment and passes in-order octets to MPA.
func (s *Stream) dissectTCP(b []byte) {
	p := &s.p
	p.Protocol = "TCP"
	payload, problem := p.TCP.parse(b, p.IP.Length)
	if problem != "" {
		p.stopDecoding(problem)
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
	c, from := s.findConn()
	out, reverse := &c.directions[from], &c.directions[1-from]
	out.checkAck(p, reverse)
	if t.Flags&FlagRST != 0 {
		p.mark(MarkRejected, "TCP reset")
	}
	if t.Flags&FlagSYN != 0 {
		s.handleSYN(out)
		return
	}
	if t.Length > 0 {
		s.handleSegment(out, reverse, segment{t.Seq, payload, t.Length - len(payload)})
	}
	if len(p.PDUs) > 0 {
		p.Note = ""
	}
}

// findConn returns the connection of the packet and the index of its direction.
func (s *Stream) findConn() (c *conn, from int) {
	a, b := s.p.Src(), s.p.Dst()
	if b.Compare(a) < 0 {
		a, b, from = b, a, 1
	}
	return s.conns.get(connKey{s.p.Interface.Index, a, b}), from
}

// handleSYN starts a new connection in direction h and drops the state of an older one.
func (s *Stream) handleSYN(h *tcpDirection) {
	next := s.p.TCP.Seq + 1
	if h.started && h.next == next {
		s.p.mark(MarkRetransmission, "SYN has been seen")
		return
	}
	s.outOfOrderLen -= h.outOfOrderLen
	*h = tcpDirection{started: true, next: next, mpa: mpaDirection{state: mpaStartup}}
}

// checkAck marks packet p of direction h if it repeats an acknowledgement. It notes in reverse if p
// acknowledges the first gap there, which will not be filled then.
func (h *tcpDirection) checkAck(p *Packet, reverse *tcpDirection) {
	t := &p.TCP
	if t.Flags&FlagACK == 0 || t.Flags&(FlagSYN|FlagRST) != 0 {
		return
	}
	if len(reverse.outOfOrder) > 0 && int32(t.Ack-reverse.outOfOrder[0].seq) >= 0 {
		reverse.gapAcked = true
	}
	pending := reverse.started && (int32(reverse.next-t.Ack) > 0 || len(reverse.outOfOrder) > 0)
	if h.hasAck && t.Ack == h.lastAck && t.Window == h.lastWin && t.Length == 0 && t.Flags&FlagFIN == 0 && pending {
		p.mark(MarkDuplicateAck, fmt.Sprintf("TCP acknowledges %d again", t.Ack))
	}
	h.hasAck, h.lastAck, h.lastWin = true, t.Ack, t.Window
}

// handleSegment reassembles a segment with data: in order, out of order, or
// retransmitted.
func (s *Stream) handleSegment(h, reverse *tcpDirection, g segment) {
	p := &s.p
	if !h.started { // the connection started before the capture
		h.started, h.next = true, g.seq
		h.mpa.state = mpaUnsynced
	}
	if h.gapAcked {
		s.skipGap(h, reverse)
	}
	switch ahead := int(int32(g.seq - h.next)); { // int, because -math.MinInt32 overflows
	case ahead < 0 && -ahead >= g.len():
		p.mark(MarkRetransmission, fmt.Sprintf("TCP octets %d-%d have been seen", g.seq, g.seq+uint32(g.len())-1))
		return
	case ahead < 0:
		p.mark(MarkRetransmission, fmt.Sprintf("the first %d TCP octets have been seen", -ahead))
		g.trim(-ahead)
	case ahead > 0:
		s.bufferSegment(h, reverse, g, ahead)
		return
	}
	if len(h.outOfOrder) > 0 {
		p.mark(MarkOutOfOrder, "fills a gap before TCP octet "+fmt.Sprint(h.outOfOrder[0].seq))
	}
	s.deliver(h, reverse, g)
	s.deliverBuffered(h, reverse)
}

// trim drops the first n octets: those of data, then missing ones, which follow them.
func (g *segment) trim(n int) {
	g.seq += uint32(n)
	cut := min(n, len(g.data))
	g.data, g.missing = g.data[cut:], g.missing-(n-cut)
}

// bufferSegment queues segment g, which begins ahead octets after the next one in order. If too
// much is queued, it skips the gap.
func (s *Stream) bufferSegment(h, reverse *tcpDirection, g segment, ahead int) {
	i, found := slices.BinarySearchFunc(h.outOfOrder, g.seq, func(e segment, seq uint32) int { return int(int32(e.seq - seq)) })
	switch {
	case found && h.outOfOrder[i].len() >= g.len():
		s.p.mark(MarkRetransmission, fmt.Sprintf("TCP octets %d-%d have been seen", g.seq, g.seq+uint32(g.len())-1))
		return
	case i < len(h.outOfOrder): // before the last gap
		s.p.mark(MarkOutOfOrder, fmt.Sprintf("TCP octets come before those of %d", h.outOfOrder[i].seq))
	default:
		s.p.mark(MarkGap, fmt.Sprintf("TCP octets are missing before it, %d of them up to here", ahead))
	}
	g.data = slices.Clone(g.data)
	h.outOfOrder = slices.Insert(h.outOfOrder, i, g)
	h.outOfOrderLen += len(g.data)
	s.outOfOrderLen += len(g.data)
	if len(h.outOfOrder) > maxOutOfOrderSegments || h.outOfOrderLen > maxOutOfOrderOctets || s.outOfOrderLen > maxOutOfOrderTotal {
		s.skipGap(h, reverse)
		s.deliverBuffered(h, reverse)
	}
}

// skipGap continues after the first gap of direction h, which will not be filled.
func (s *Stream) skipGap(h, reverse *tcpDirection) {
	h.gapAcked = false
	if len(h.outOfOrder) == 0 {
		return
	}
	missing := h.outOfOrder[0].seq - h.next
	s.p.mark(MarkMissingData, fmt.Sprintf("%d TCP octets are not in the capture", missing))
	s.skipMissing(h, reverse, int(missing))
	h.next = h.outOfOrder[0].seq
	s.deliverBuffered(h, reverse)
}

// deliverBuffered delivers queued segments that are now in order.
func (s *Stream) deliverBuffered(h, reverse *tcpDirection) {
	for len(h.outOfOrder) > 0 {
		g := h.outOfOrder[0]
		ahead := int32(g.seq - h.next)
		if ahead > 0 {
			return
		}
		h.outOfOrderLen -= len(g.data)
		s.outOfOrderLen -= len(g.data)
		h.outOfOrder = slices.Delete(h.outOfOrder, 0, 1)
		if int(-ahead) < g.len() {
			g.trim(int(-ahead))
			s.deliver(h, reverse, g)
		}
	}
}

// deliver passes an in-order segment to MPA.
func (s *Stream) deliver(h, reverse *tcpDirection, g segment) {
	h.next = g.seq + uint32(g.len())
	s.feedMPA(h, reverse, g)
	if g.missing > 0 {
		s.skipMissing(h, reverse, g.missing)
	}
}
