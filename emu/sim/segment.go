package sim

import (
	"hash/crc32"
	"math/bits"
	"math/rand/v2"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// tcpHeaderLen is what a segment costs on the wire beyond IP, with timestamps.
const tcpHeaderLen = 32

type segmentKind uint8

const (
	segmentData segmentKind = iota
	segmentSyn
	segmentAccept
	segmentFin
	segmentReset
)

var segmentNames = [...]string{"data", "syn", "accept", "fin", "reset"}

// segment is a piece of a stream under way. Segments are pooled as packets are.
type segment struct {
	id   uint32
	kind segmentKind
	from *Stream
	data []byte
	read int // bytes the receiver has taken

	seq, ack uint64 // as link.Segment counts
	push     bool   // nothing was written behind it

	stall time.Duration
	reset bool // it breaks the stream where it arrives

	fromEpoch, toEpoch uint32 // of the links it crossed, to know if one went down meanwhile

	trunks trunkWalk
}

type streamChance struct {
	cut, stall, corrupt, reset *rand.Rand // nil where off
}

func (s *Stream) initChance(name string) {
	c := &s.net.cfg.Stream
	for _, k := range []struct {
		ppm  uint32
		kind string
		to   **rand.Rand
	}{
		{c.CutPPM, "cut", &s.chance.cut},
		{c.StallPPM, "stall", &s.chance.stall},
		{c.CorruptPPM, "corrupt", &s.chance.corrupt},
		{c.ResetPPM, "reset", &s.chance.reset},
	} {
		if k.ppm > 0 {
			*k.to = s.net.w.Rand(name + "/" + k.kind)
		}
	}
}

func (n *Net) newSegment() *segment {
	if k := len(n.freeSegments); k > 0 {
		seg := n.segments[n.freeSegments[k-1]]
		n.freeSegments = n.freeSegments[:k-1]
		return seg
	}
	seg := &segment{id: uint32(len(n.segments))}
	n.segments = append(n.segments, seg)
	return seg
}

func (n *Net) releaseSegment(seg *segment) {
	*seg = segment{id: seg.id, data: seg.data[:0]}
	n.freeSegments = append(n.freeSegments, seg.id)
}

func (s *Stream) newSegment(kind segmentKind) *segment {
	seg := s.net.newSegment()
	seg.kind, seg.from = kind, s
	seg.seq, seg.ack = s.nextSeq(kind), s.rcvd
	return seg
}

// gather is what is left of buffers that are to be written one behind the other.
type gather struct {
	bufs [][]byte
	off  int // in the first of them
	left int // bytes
}

// take appends the next n bytes to b.
func (g *gather) take(b []byte, n int) []byte {
	g.left -= n
	for n > 0 {
		front := g.bufs[0][g.off:]
		if n < len(front) {
			b = append(b, front[:n]...)
			g.off += n
			break
		}
		b = append(b, front...)
		n -= len(front)
		g.bufs, g.off = g.bufs[1:], 0
	}
	return b
}

// cutSegment makes a segment of the front of from: as much as fits, up to the
// next exact event, or less by chance.
func (s *Stream) cutSegment(from *gather) *segment {
	seg := s.newSegment(segmentData)
	n := min(from.left, s.mss)
	c := &s.net.cfg.Stream
	if r := s.chance.cut; r != nil {
		cut, at := below(r, impair.PPM) < int(c.CutPPM), r.Uint64()
		if cut {
			hi, _ := bits.Mul64(at, uint64(n))
			n = int(hi) + 1
		}
	}
	n = s.eventsAt(seg, n)
	seg.data = from.take(seg.data, n)
	seg.push = from.left == 0
	s.corruptAt(seg)
	if r := s.chance.stall; r != nil && below(r, impair.PPM) < int(c.StallPPM) {
		seg.stall += c.StallFor
	}
	if r := s.chance.corrupt; r != nil {
		hit, at := below(r, impair.PPM) < int(c.CorruptPPM), r.Uint64()
		if hit {
			bit, _ := bits.Mul64(at, uint64(n)*8)
			seg.data[bit/8] ^= 0x80 >> (bit % 8)
		}
	}
	if r := s.chance.reset; r != nil && below(r, impair.PPM) < int(c.ResetPPM) {
		seg.reset = true
	}
	s.written += uint64(n)
	return seg
}

// eventsAt lets the exact events that start a segment act on seg, which is to be
// n bytes from s.written on, and returns n, cut so that the next of them starts
// its own.
func (s *Stream) eventsAt(seg *segment, n int) int {
	for _, e := range s.events {
		switch {
		case e.Action == StreamCorrupt || e.Offset < s.written:
		case e.Offset > s.written:
			if ahead := e.Offset - s.written; ahead < uint64(n) {
				n = int(ahead)
			}
			return n
		case e.Action == StreamStall:
			seg.stall += e.For
		case e.Action == StreamReset:
			seg.reset = true
		}
	}
	return n
}

// corruptAt inverts the bits in seg that exact events name, and forgets the
// events that seg is past.
func (s *Stream) corruptAt(seg *segment) {
	end := s.written + uint64(len(seg.data))
	for len(s.events) > 0 && s.events[0].Offset < end {
		if e := s.events[0]; e.Action == StreamCorrupt {
			seg.data[e.Offset-s.written] ^= 1 << e.Bit
		}
		s.events = s.events[1:]
	}
}

// farPort is the port of the other end.
func (s *Stream) farPort() *Port { return s.net.byAddr[s.remote.Addr()] }

// returnLatency is how long a few bytes take from the other end to this one.
func (s *Stream) returnLatency() time.Duration {
	far := s.farPort()
	switch {
	case far == nil:
		return s.port.down.latency
	case s.net.cfg.Cable:
		return far.up.latency
	}
	all := far.up.latency + s.port.down.latency
	s.net.path(far.sw, s.port.sw, flowHash(s.remote, s.local), func(w *way) { all += w.wire.latency })
	return all
}

// transmit puts seg on the sender's cable. Bandwidth is shared with packets, but
// queues do not lose segments.
func (s *Stream) transmit(seg *segment) {
	w := s.net.w
	s.noteSegment("send", seg)
	s.net.tapSegment(s.port, Out, seg)
	seg.fromEpoch = s.port.epoch
	// A link that goes down forgets its queue, so what is sent after that could
	// overtake what was sent before: order is kept here.
	s.atSwitch = max(s.atSwitch, s.port.up.send(w.now, s.wireBytes(seg)))
	w.At(s.atSwitch, (*segmentAtSwitch)(s.net), uint64(seg.id))
}

func (s *Stream) wireBytes(seg *segment) int {
	ip := link.IPv6HeaderLen
	if s.remote.Addr().Is4() {
		ip = link.IPv4HeaderLen
	}
	return ip + tcpHeaderLen + len(seg.data)
}

type (
	segmentAtSwitch Net
	segmentAtPort   Net
	retransmission  Stream
)

func (h *segmentAtSwitch) HandleEvent(now mono.Time, arg uint64) {
	n := (*Net)(h)
	seg := n.segments[arg]
	far := seg.from.farPort()
	if far == nil { // closed meanwhile; its streams are broken
		n.releaseSegment(seg)
		return
	}
	if seg.from.port.sw != far.sw && !n.walked(now, seg, far) {
		return
	}
	seg.toEpoch = far.epoch
	if n.cfg.Cable {
		(*segmentAtPort)(n).HandleEvent(now, arg)
		return
	}
	s := seg.from
	s.atPort = max(s.atPort, far.down.send(now, s.wireBytes(seg)))
	n.w.At(s.atPort, (*segmentAtPort)(n), arg)
}

func (h *segmentAtPort) HandleEvent(now mono.Time, arg uint64) {
	n := (*Net)(h)
	seg := n.segments[arg]
	s := seg.from
	switch {
	case s.held.len() > 0: // order is kept
		s.held.push(seg)
	case !s.passes(seg):
		s.held.push(seg)
		s.attempts = 1
		s.retry.Reset(now.Add(n.cfg.Stream.RetryDelay))
	case seg.stall > 0:
		s.held.push(seg)
		s.attempts = 0
		s.retry.Reset(now.Add(seg.stall))
		seg.stall = 0
	default:
		s.arrive(seg)
	}
}

// passes reports whether the way was clear for seg: both links stayed up and
// nothing stands between the ports.
func (s *Stream) passes(seg *segment) bool {
	far := s.farPort()
	return far != nil && seg.fromEpoch == s.port.epoch && seg.toEpoch == far.epoch &&
		!s.port.isDown && !far.isDown && s.net.reachable(s.port, far) && s.trunksPass(seg, far)
}

// HandleEvent tries again with what was held up.
func (h *retransmission) HandleEvent(now mono.Time, _ uint64) {
	s := (*Stream)(h)
	c := &s.net.cfg.Stream
	for s.held.len() > 0 {
		seg := *s.held.front()
		far := s.farPort()
		if far == nil {
			s.fail(link.ErrReset)
			s.dropHeld()
			return
		}
		seg.fromEpoch, seg.toEpoch = s.port.epoch, far.epoch // it is sent anew
		seg.trunks.lost = false
		if !s.passes(seg) {
			if s.attempts++; s.attempts > c.Retries {
				s.fail(link.ErrReset)
				s.dropHeld()
				return
			}
			delay := c.RetryDelay << min(s.attempts-1, 32)
			if delay <= 0 || delay > c.RetryDelayMax {
				delay = c.RetryDelayMax
			}
			s.retry.Reset(now.Add(delay))
			return
		}
		s.attempts = 0
		if seg.stall > 0 {
			s.retry.Reset(now.Add(seg.stall))
			seg.stall = 0
			return
		}
		s.held.pop()
		s.arrive(seg)
	}
}

func (s *Stream) dropHeld() {
	for s.held.len() > 0 {
		s.net.releaseSegment(s.held.pop())
	}
}

// arrive hands seg, sent by s, to its peer.
func (s *Stream) arrive(seg *segment) {
	n := s.net
	now := n.w.now
	if seg.kind == segmentSyn {
		n.accept(s, seg)
		n.releaseSegment(seg)
		return
	}
	to := s.peer
	if to == nil || to.err != nil {
		if to != nil && seg.kind != segmentReset && s.err == nil {
			// The peer broke the stream, or gave up, and did not get it through.
			s.breakAfterReturn()
		}
		n.releaseSegment(seg)
		return
	}
	to.noteSegment("deliver", seg)
	to.took(seg)
	switch {
	case seg.reset:
		n.releaseSegment(seg)
		to.transmit(to.newSegment(segmentReset))
		to.fail(link.ErrReset)
	case seg.kind == segmentData:
		to.in.push(seg)
		to.readable.call(now)
	case seg.kind == segmentFin:
		n.releaseSegment(seg)
		to.eof = true
		to.readable.call(now)
		to.forgetIfDone()
	case seg.kind == segmentAccept:
		n.releaseSegment(seg)
		to.establish(now)
	case seg.kind == segmentReset:
		n.releaseSegment(seg)
		to.fail(link.ErrReset)
	}
}

func (s *Stream) noteSegment(what string, seg *segment) {
	if w := s.net.w; w.Tracing() {
		w.Tracef("%s stream %s %s %v>%v len=%d crc=%x", s.port.cfg.Name, what, segmentNames[seg.kind],
			seg.from.local, seg.from.remote, len(seg.data), crc32.Checksum(seg.data, castagnoli))
	}
}
