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

// conn is a TCP connection: its directions from a to b, and from b to a.
type conn [2]tcpDirection

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

// dissectTCP decodes a segment and passes in-order octets to MPA. The packet's note describes the
// segment, unless the segment completes PDUs: their summaries replace it.
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
	// Both directions of a connection have the same key, with the lower address first.
	key, sender := connKey{p.Interface.Index, p.Src(), p.Dst()}, 0
	if key.b.Compare(key.a) < 0 {
		key.a, key.b, sender = key.b, key.a, 1
	}
	c := s.conns.get(key)
	dir, reverse := &c[sender], &c[1-sender]
	dir.checkAck(p, reverse)
	if t.Flags&FlagRST != 0 {
		p.mark(MarkRejected, "TCP reset")
	}
	if t.Flags&FlagSYN != 0 {
		s.handleSYN(dir)
		return
	}
	if t.Length > 0 {
		s.handleSegment(dir, reverse, segment{t.Seq, payload, t.Length - len(payload)})
	}
	if len(p.PDUs) > 0 {
		p.Note = ""
	}
}

// handleSYN starts a new connection in direction dir and drops the state of an older one. A
// retransmitted SYN is marked, and changes nothing.
func (s *Stream) handleSYN(dir *tcpDirection) {
	next := s.p.TCP.Seq + 1
	if dir.started && dir.next == next {
		s.p.mark(MarkRetransmission, "SYN has been seen")
		return
	}
	s.outOfOrderLen -= dir.outOfOrderLen
	*dir = tcpDirection{started: true, next: next, mpa: mpaDirection{state: mpaStartup}}
}

// checkAck marks packet p of direction dir if it repeats an acknowledgement while data is pending.
// If p acknowledges the octets of the first gap in the reverse direction, which arrived but are
// missing in the capture, it sets reverse.gapAcked.
func (dir *tcpDirection) checkAck(p *Packet, reverse *tcpDirection) {
	t := &p.TCP
	if t.Flags&FlagACK == 0 || t.Flags&(FlagSYN|FlagRST) != 0 {
		return
	}
	if len(reverse.outOfOrder) > 0 && int32(t.Ack-reverse.outOfOrder[0].seq) >= 0 {
		reverse.gapAcked = true
	}
	pending := reverse.started && (int32(reverse.next-t.Ack) > 0 || len(reverse.outOfOrder) > 0)
	if dir.hasAck && t.Ack == dir.lastAck && t.Window == dir.lastWin && t.Length == 0 && t.Flags&FlagFIN == 0 && pending {
		p.mark(MarkDuplicateAck, fmt.Sprintf("TCP acknowledges %d again", t.Ack))
	}
	dir.hasAck, dir.lastAck, dir.lastWin = true, t.Ack, t.Window
}

// handleSegment reassembles a segment with data: in order, out of order, or retransmitted.
func (s *Stream) handleSegment(dir, reverse *tcpDirection, g segment) {
	p := &s.p
	if !dir.started { // the connection started before the capture
		dir.started, dir.next = true, g.seq
		dir.mpa.state = mpaUnsynced
	}
	if dir.gapAcked {
		s.skipGap(dir, reverse)
	}
	switch ahead := int(int32(g.seq - dir.next)); { // int, because -math.MinInt32 overflows
	case ahead < 0 && -ahead >= g.len():
		p.mark(MarkRetransmission, fmt.Sprintf("TCP octets %d-%d have been seen", g.seq, g.seq+uint32(g.len())-1))
		return
	case ahead < 0:
		p.mark(MarkRetransmission, fmt.Sprintf("the first %d TCP octets have been seen", -ahead))
		g.trim(-ahead)
	case ahead > 0:
		s.bufferSegment(dir, reverse, g, ahead)
		return
	}
	if len(dir.outOfOrder) > 0 {
		p.mark(MarkOutOfOrder, "fills a gap before TCP octet "+fmt.Sprint(dir.outOfOrder[0].seq))
	}
	s.deliver(dir, reverse, g)
	s.deliverBuffered(dir, reverse)
}

// trim drops the first n octets: first octets of data, then of the missing octets that follow data.
func (g *segment) trim(n int) {
	g.seq += uint32(n)
	cut := min(n, len(g.data))
	g.data, g.missing = g.data[cut:], g.missing-(n-cut)
}

// bufferSegment queues segment g, which begins ahead octets after dir.next, the next octet in
// order. If too much is queued, it skips the gap.
func (s *Stream) bufferSegment(dir, reverse *tcpDirection, g segment, ahead int) {
	i, found := slices.BinarySearchFunc(dir.outOfOrder, g.seq, func(e segment, seq uint32) int { return int(int32(e.seq - seq)) })
	switch {
	case found && dir.outOfOrder[i].len() >= g.len():
		s.p.mark(MarkRetransmission, fmt.Sprintf("TCP octets %d-%d have been seen", g.seq, g.seq+uint32(g.len())-1))
		return
	case i < len(dir.outOfOrder): // before a queued segment
		s.p.mark(MarkOutOfOrder, fmt.Sprintf("TCP octets come before those of %d", dir.outOfOrder[i].seq))
	default:
		s.p.mark(MarkGap, fmt.Sprintf("TCP octets are missing before it, %d of them up to here", ahead))
	}
	g.data = slices.Clone(g.data)
	dir.outOfOrder = slices.Insert(dir.outOfOrder, i, g)
	dir.outOfOrderLen += len(g.data)
	s.outOfOrderLen += len(g.data)
	if len(dir.outOfOrder) > maxOutOfOrderSegments || dir.outOfOrderLen > maxOutOfOrderOctets || s.outOfOrderLen > maxOutOfOrderTotal {
		s.skipGap(dir, reverse)
		s.deliverBuffered(dir, reverse)
	}
}

// skipGap continues after the first gap of direction dir, which will not be filled.
func (s *Stream) skipGap(dir, reverse *tcpDirection) {
	dir.gapAcked = false
	if len(dir.outOfOrder) == 0 {
		return
	}
	missing := dir.outOfOrder[0].seq - dir.next
	s.p.mark(MarkMissingData, fmt.Sprintf("%d TCP octets are not in the capture", missing))
	s.skipMissing(dir, reverse, int(missing))
	dir.next = dir.outOfOrder[0].seq
	s.deliverBuffered(dir, reverse)
}

// deliverBuffered delivers queued segments that are now in order.
func (s *Stream) deliverBuffered(dir, reverse *tcpDirection) {
	for len(dir.outOfOrder) > 0 {
		g := dir.outOfOrder[0]
		ahead := int32(g.seq - dir.next)
		if ahead > 0 {
			return
		}
		dir.outOfOrderLen -= len(g.data)
		s.outOfOrderLen -= len(g.data)
		dir.outOfOrder = slices.Delete(dir.outOfOrder, 0, 1)
		if int(-ahead) < g.len() {
			g.trim(int(-ahead))
			s.deliver(dir, reverse, g)
		}
	}
}

// deliver passes an in-order segment to MPA.
func (s *Stream) deliver(dir, reverse *tcpDirection, g segment) {
	dir.next = g.seq + uint32(g.len())
	s.feedMPA(dir, reverse, g)
	if g.missing > 0 {
		s.skipMissing(dir, reverse, g.missing)
	}
}
