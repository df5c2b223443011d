package nslab

import (
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/netns/uswitch"
)

// streamWay does exact things at places of TCP streams that pass one direction of a
// port: a uswitch.FrameHandler before another.
type streamWay struct {
	next  uswitch.FrameHandler
	watch *lab.StreamWatch
	flows map[flow]*flowState
	conns int // so far
	frame []byte
	drops uint64
}

// flow is one direction of a stream.
type flow struct{ src, dst netip.AddrPort }

// flowState is how far one has come.
type flowState struct {
	conn int    // in the order in which their first packets came by
	base uint32 // the number of the first byte
	most uint64 // the furthest that was seen
}

func newStreamWay(events []lab.StreamEvent, next uswitch.FrameHandler) *streamWay {
	return &streamWay{next: next, watch: lab.NewStreamWatch(events), flows: make(map[flow]*flowState)}
}

// Apply implements uswitch.FrameHandler.
func (y *streamWay) Apply(now time.Duration, f uswitch.Frame, emit uswitch.Emit) {
	var t tcpSegment
	if !t.parse(f.Bytes) {
		y.next.Apply(now, f, emit)
		return
	}
	conn, from, ok := y.place(&t)
	if !ok {
		y.next.Apply(now, f, emit)
		return
	}
	var held time.Duration
	changed := false
	for _, e := range y.watch.At(conn, from, t.end-t.data) {
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
			held += e.Delay
		case lab.StreamCorrupt:
			t.flip(&f, t.data+int(e.Offset-from), 1<<e.Bit)
		case lab.StreamReset:
			t.flip(&f, t.l4+13, (t.flags^tcpRST)&(tcpRST|tcpFIN|tcpPSH))
		}
	}
	if held > 0 {
		at := emit
		emit = func(after time.Duration, f uswitch.Frame) { at(max(after, 0)+held, f) }
	}
	y.next.Apply(now, f, emit)
}

// NextTimer implements uswitch.FrameHandler.
func (y *streamWay) NextTimer() time.Duration { return y.next.NextTimer() }

// HandleTimer implements uswitch.FrameHandler.
func (y *streamWay) HandleTimer(now time.Duration, emit uswitch.Emit) { y.next.HandleTimer(now, emit) }

// place is which stream a segment is of, and how many bytes of it come before;
// false if it has no data, or its stream began before anybody looked.
func (y *streamWay) place(t *tcpSegment) (conn int, from uint64, ok bool) {
	s := y.flows[t.flow]
	if t.flags&tcpSYN != 0 {
		// The first packet of a stream, or of another between the same ports.
		if s == nil || s.base != t.seq+1 {
			y.conns++
			s = &flowState{conn: y.conns, base: t.seq + 1}
			y.flows[t.flow] = s
		}
		return 0, 0, false
	}
	if s == nil || t.end == t.data {
		return 0, 0, false
	}
	// Numbers wrap: the place is the one nearest to the furthest so far.
	from = s.most + uint64(int64(int32(t.seq-s.base-uint32(s.most))))
	if int64(from) < 0 {
		return 0, 0, false
	}
	s.most = max(s.most, from+uint64(t.end-t.data))
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

// tcpSegment is where things are in a frame with one.
type tcpSegment struct {
	flow          flow
	l4, data, end int
	seq           uint32
	flags         byte
}

// parse finds the segment in a frame: one of plain IP, without extension headers and
// in one piece, as the kernel sends TCP.
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

// flip inverts bits of a byte, and puts the checksum right where the frame has one:
// nobody but a check above TCP is to notice.
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

// wordAt is the word of a checksum at a place; behind the end is a zero.
func wordAt(b []byte, at, end int) uint16 {
	if at+1 < end {
		return binary.BigEndian.Uint16(b[at:])
	}
	return uint16(b[at]) << 8
}
