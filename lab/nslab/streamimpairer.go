package nslab

import (
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/netns/uswitch"
)

// streamImpairer executes the stream events of one direction of a port, and passes
// frames to the next handler.
type streamImpairer struct {
	next    uswitch.FrameHandler
	matcher *lab.StreamMatcher
	flows   map[flow]*flowState
	conns   int // number of streams seen
	frame   []byte
	drops   uint64
}

// flow identifies one direction of a TCP connection.
type flow struct{ src, dst netip.AddrPort }

// flowState is the state of a flow.
type flowState struct {
	conn      int    // number of the stream, in the order of SYN packets
	firstSeq  uint32 // sequence number of the first byte
	maxOffset uint64 // maximum end offset seen
}

func newStreamImpairer(events []lab.StreamEvent, next uswitch.FrameHandler) *streamImpairer {
	return &streamImpairer{next: next, matcher: lab.NewStreamMatcher(events), flows: make(map[flow]*flowState)}
}

// Apply implements uswitch.FrameHandler.
func (y *streamImpairer) Apply(now time.Duration, f uswitch.Frame, emit uswitch.Emit) {
	var t tcpSegment
	if !t.parse(f.Bytes) {
		y.next.Apply(now, f, emit)
		return
	}
	conn, from, ok := y.locate(&t)
	if !ok {
		y.next.Apply(now, f, emit)
		return
	}
	var delay time.Duration
	changed := false
	for _, e := range y.matcher.Match(conn, from, t.end-t.data) {
		if !changed && (e.Do == lab.StreamCorrupt || e.Do == lab.StreamReset) {
			changed = true
			y.frame = append(y.frame[:0], f.Bytes...)
			f.Bytes = y.frame
		}
		switch e.Do {
		case lab.StreamDrop:
			y.drops++
			return
		case lab.StreamDelay:
			delay += e.Delay
		case lab.StreamCorrupt:
			t.flip(&f, t.data+int(e.Offset-from), 1<<e.Bit)
		case lab.StreamReset:
			t.flip(&f, t.l4+13, (t.flags^tcpRST)&(tcpRST|tcpFIN|tcpPSH))
		}
	}
	if delay > 0 {
		at := emit
		emit = func(after time.Duration, f uswitch.Frame) { at(max(after, 0)+delay, f) }
	}
	y.next.Apply(now, f, emit)
}

// NextTimer implements uswitch.FrameHandler.
func (y *streamImpairer) NextTimer() time.Duration { return y.next.NextTimer() }

// HandleTimer implements uswitch.FrameHandler.
func (y *streamImpairer) HandleTimer(now time.Duration, emit uswitch.Emit) {
	y.next.HandleTimer(now, emit)
}

// locate returns the stream and the offset of a segment's first byte; false if it
// has no data or its SYN was not seen.
func (y *streamImpairer) locate(t *tcpSegment) (conn int, from uint64, ok bool) {
	s := y.flows[t.flow]
	if t.flags&tcpSYN != 0 {
		// A new stream, possibly with the ports of an earlier one.
		if s == nil || s.firstSeq != t.seq+1 {
			y.conns++
			s = &flowState{conn: y.conns, firstSeq: t.seq + 1}
			y.flows[t.flow] = s
		}
		return 0, 0, false
	}
	if s == nil || t.end == t.data {
		return 0, 0, false
	}
	// Sequence numbers wrap: take the offset nearest to maxOffset.
	from = s.maxOffset + uint64(int64(int32(t.seq-s.firstSeq-uint32(s.maxOffset))))
	if int64(from) < 0 {
		return 0, 0, false
	}
	s.maxOffset = max(s.maxOffset, from+uint64(t.end-t.data))
	return s.conn, from, true
}

const (
	tcpFIN = 0x01
	tcpSYN = 0x02
	tcpRST = 0x04
	tcpPSH = 0x08

	etherIPv4 = 0x0800
	etherIPv6 = 0x86dd
	protoTCP  = 6
)

// tcpSegment has the offsets and fields of a TCP segment in a frame.
type tcpSegment struct {
	flow          flow
	l4, data, end int
	seq           uint32
	flags         byte
}

// parse parses a frame with a TCP segment over IPv4 or IPv6, without fragments and
// extension headers.
func (t *tcpSegment) parse(b []byte) bool {
	if len(b) < etherBytes+20 {
		return false
	}
	ip := b[etherBytes:]
	var src, dst netip.Addr
	switch binary.BigEndian.Uint16(b[12:]) {
	case etherIPv4:
		header, total := int(ip[0]&15)*4, int(binary.BigEndian.Uint16(ip[2:]))
		if ip[0]>>4 != 4 || ip[9] != protoTCP || binary.BigEndian.Uint16(ip[6:])&0x3fff != 0 || header < 20 || total < header || total > len(ip) {
			return false
		}
		src, dst = netip.AddrFrom4([4]byte(ip[12:16])), netip.AddrFrom4([4]byte(ip[16:20]))
		t.l4, t.end = etherBytes+header, etherBytes+total
	case etherIPv6:
		if len(ip) < 40 || ip[0]>>4 != 6 || ip[6] != protoTCP || 40+int(binary.BigEndian.Uint16(ip[4:])) > len(ip) {
			return false
		}
		src, dst = netip.AddrFrom16([16]byte(ip[8:24])), netip.AddrFrom16([16]byte(ip[24:40]))
		t.l4, t.end = etherBytes+40, etherBytes+40+int(binary.BigEndian.Uint16(ip[4:]))
	default:
		return false
	}
	tcp := b[t.l4:t.end]
	if len(tcp) < 20 {
		return false
	}
	t.data = t.l4 + int(tcp[12]>>4)*4
	if t.data < t.l4+20 || t.data > t.end {
		return false
	}
	t.seq, t.flags = binary.BigEndian.Uint32(tcp[4:]), tcp[13]
	t.flow = flow{
		netip.AddrPortFrom(src, binary.BigEndian.Uint16(tcp)),
		netip.AddrPortFrom(dst, binary.BigEndian.Uint16(tcp[2:])),
	}
	return true
}

// flip inverts bits of a byte and updates the TCP checksum, so that only checks
// above TCP detect the change.
func (t *tcpSegment) flip(f *uswitch.Frame, at int, mask byte) {
	b := f.Bytes
	word := t.l4 + (at-t.l4)&^1
	old := wordAt(b, word, t.end)
	b[at] ^= mask
	if f.ChecksumPartial {
		return
	}
	// RFC 1624: HC' = ~(~HC + ~m + m')
	sum := uint32(^binary.BigEndian.Uint16(b[t.l4+16:])) + uint32(^old) + uint32(wordAt(b, word, t.end))
	sum = sum>>16 + sum&0xffff
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(b[t.l4+16:], ^uint16(sum))
}

// wordAt returns the 16-bit word of the checksum at an offset, padded with zero at
// the end.
func wordAt(b []byte, at, end int) uint16 {
	if at+1 < end {
		return binary.BigEndian.Uint16(b[at:])
	}
	return uint16(b[at]) << 8
}
