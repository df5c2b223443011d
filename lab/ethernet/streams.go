package ethernet

import (
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/netns/uswitch"
)

// StreamImpairer is a FrameHandler that executes stream events on the TCP segments of one
// direction of a port.
type StreamImpairer struct {
	Matcher *lab.StreamMatcher // counts the executed events
	Drops   uint64             // number of dropped frames
	next    uswitch.FrameHandler
	flows   map[flow]*flowState
	conns   int // number of streams seen
	frame   []byte
}

// flow identifies one direction of a TCP connection.
type flow struct{ src, dst netip.AddrPort }

// flowState is the state of a flow.
type flowState struct {
	conn      int    // number of the stream, in the order of SYN packets
	firstSeq  uint32 // sequence number of the first byte
	maxOffset uint64 // maximum end offset seen
}

// NewStreamImpairer returns a StreamImpairer that passes frames to next.
func NewStreamImpairer(events []lab.StreamEvent, next uswitch.FrameHandler) *StreamImpairer {
	return &StreamImpairer{next: next, Matcher: lab.NewStreamMatcher(events), flows: make(map[flow]*flowState)}
}

// Apply implements uswitch.FrameHandler. It executes the stream events (drop, delay, corrupt,
// reset) that match a TCP segment, and passes frames that are not dropped to the next handler.
func (im *StreamImpairer) Apply(now time.Duration, f uswitch.Frame, emit uswitch.Emit) {
	var t tcpSegment
	var conn int    // number of the segment's stream
	var from uint64 // offset of the segment's first byte in the stream
	ok := t.parse(f.Bytes)
	if ok {
		conn, from, ok = im.locate(&t)
	}
	if !ok {
		im.next.Apply(now, f, emit)
		return
	}
	var delay time.Duration
	copied := false
	for _, e := range im.Matcher.Match(conn, from, t.end-t.data) {
		if !copied && (e.Do == lab.StreamCorrupt || e.Do == lab.StreamReset) {
			copied = true // the switch's bytes must not change
			im.frame = append(im.frame[:0], f.Bytes...)
			f.Bytes = im.frame
		}
		switch e.Do {
		case lab.StreamDrop:
			im.Drops++
			return
		case lab.StreamDelay:
			delay += e.Delay
		case lab.StreamCorrupt:
			t.flip(&f, t.data+int(e.Offset-from), 1<<e.Bit)
		case lab.StreamReset:
			// The flags RST, FIN and PSH become RST alone.
			flags := t.l4 + 13
			t.flip(&f, flags, (f.Bytes[flags]^tcpRST)&(tcpRST|tcpFIN|tcpPSH))
		}
	}
	if delay > 0 {
		undelayed := emit
		emit = func(after time.Duration, f uswitch.Frame) { undelayed(max(after, 0)+delay, f) } // negative is the same as 0
	}
	im.next.Apply(now, f, emit)
}

// NextTimer implements uswitch.FrameHandler.
func (im *StreamImpairer) NextTimer() time.Duration { return im.next.NextTimer() }

// HandleTimer implements uswitch.FrameHandler.
func (im *StreamImpairer) HandleTimer(now time.Duration, emit uswitch.Emit) {
	im.next.HandleTimer(now, emit)
}

// locate returns conn, the number of a segment's stream, and from, the offset of the segment's
// first byte in the stream. A SYN begins a new stream. ok is false for a SYN, for a segment without
// data or before the stream's start, and if no SYN was seen.
func (im *StreamImpairer) locate(t *tcpSegment) (conn int, from uint64, ok bool) {
	s := im.flows[t.flow]
	if t.flags&tcpSYN != 0 {
		// A new stream, possibly with the ports of an earlier one.
		if s == nil || s.firstSeq != t.seq+1 {
			im.conns++
			s = &flowState{conn: im.conns, firstSeq: t.seq + 1}
			im.flows[t.flow] = s
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

// tcpSegment is a TCP segment in a frame.
type tcpSegment struct {
	headers
	flow  flow
	data  int // offset of the data
	seq   uint32
	flags byte
}

// parse sets t to the TCP segment in frame b; false if there is no complete one.
func (t *tcpSegment) parse(b []byte) bool {
	if !t.headers.parse(b) || t.proto != link.ProtocolTCP {
		return false
	}
	tcp := b[t.l4:t.end]
	src, dst := link.IPAddrs(b[t.l3:])
	t.data, t.seq, t.flags = t.dataOffset(b), binary.BigEndian.Uint32(tcp[4:]), tcp[13]
	t.flow = flow{
		netip.AddrPortFrom(src, binary.BigEndian.Uint16(tcp)),
		netip.AddrPortFrom(dst, binary.BigEndian.Uint16(tcp[2:])),
	}
	return true
}

// flip inverts the bits of mask in the byte at an offset of the frame, and corrects the TCP
// checksum, so that only checks above TCP, such as the CRC of MPA, detect the change. The NIC
// completes a partial checksum later.
func (t *tcpSegment) flip(f *uswitch.Frame, at int, mask byte) {
	f.Bytes[at] ^= mask
	if !f.ChecksumPartial {
		const partial = false
		t.setChecksum(f.Bytes, partial)
	}
}
