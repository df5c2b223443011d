package sim

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// StreamConfig configures the byte streams of a Net. Streams are reliable: a
// lost segment costs time. The impairments of ports do not apply to streams;
// these do.
type StreamConfig struct {
	// BufferBytes is the window: bytes written and not yet read by the peer. 0
	// means 1 MiB.
	BufferBytes int
	// CutPPM is the probability that a segment ends early, at a random offset.
	// Read returns no more than one segment.
	CutPPM uint32
	// StallPPM is the probability that a segment, and all behind it, is delayed
	// by StallFor, as by a loss and its retransmission.
	StallPPM uint32
	StallFor time.Duration
	// CorruptPPM is the probability that a bit of a segment is inverted and the
	// TCP checksum does not detect it.
	CorruptPPM uint32
	// ResetPPM is the probability that a segment resets the stream instead of
	// arriving.
	ResetPPM uint32
	// RetryDelay is the first retransmission timeout of a segment that was lost
	// to a partition or a link that is down. It doubles each time up to
	// RetryDelayMax; after Retries failures the stream is reset. 0 means 200
	// ms, 2 min and 15.
	RetryDelay, RetryDelayMax time.Duration
	Retries                   int
	// Events apply at exact offsets.
	Events []StreamEvent
}

// StreamEvent is one action at an exact offset of a stream.
type StreamEvent struct {
	// Conn selects the stream by order of dialing in the Net: 1 is the first, 0
	// every stream.
	Conn int
	// FromListener selects the bytes that the listening side writes instead of
	// those of the dialing side.
	FromListener bool
	// Offset is the number of bytes before the event.
	Offset uint64
	Action StreamAction
	// For is the duration of a stall.
	For time.Duration
	// Bit is the bit that a corruption inverts; 0 is the least significant.
	Bit uint8
}

// StreamAction is the action of a StreamEvent.
type StreamAction string

// Stream actions.
const (
	StreamCut     StreamAction = "cut"         // a segment starts there
	StreamStall   StreamAction = "stall"       // a segment starts there and is delayed
	StreamCorrupt StreamAction = "corrupt_bit" // a bit of the byte there is inverted
	StreamReset   StreamAction = "reset"       // bytes before it arrive, then the stream is reset
)

// withDefaults returns c with defaults for zero fields. Retransmissions are as in Linux by default.
func (c StreamConfig) withDefaults() StreamConfig {
	c.BufferBytes = cmp.Or(c.BufferBytes, 1<<20)
	c.RetryDelay = cmp.Or(c.RetryDelay, 200*time.Millisecond)
	c.RetryDelayMax = cmp.Or(c.RetryDelayMax, max(2*time.Minute, c.RetryDelay))
	c.Retries = cmp.Or(c.Retries, 15)
	return c
}

// validate returns an error for values out of range.
func (c *StreamConfig) validate() error {
	var errs problems
	for _, f := range []struct {
		name string
		ppm  uint32
	}{{"CutPPM", c.CutPPM}, {"StallPPM", c.StallPPM}, {"CorruptPPM", c.CorruptPPM}, {"ResetPPM", c.ResetPPM}} {
		errs.check(f.ppm <= impair.PPM, "Stream.%s %d is more than %d, which is every segment", f.name, f.ppm, impair.PPM)
	}
	errs.check(c.BufferBytes >= 0 && c.Retries >= 0,
		"Stream.BufferBytes %d, Stream.Retries %d: neither may be negative", c.BufferBytes, c.Retries)
	errs.check(c.RetryDelay >= 0 && c.RetryDelayMax >= c.RetryDelay,
		"Stream.RetryDelay %v, Stream.RetryDelayMax %v: want 0 <= RetryDelay <= RetryDelayMax", c.RetryDelay, c.RetryDelayMax)
	errs.check(c.StallFor > 0 || c.StallFor == 0 && c.StallPPM == 0, "Stream.StallFor %v: must be positive", c.StallFor)
	for i, e := range c.Events {
		err := e.validate()
		errs.check(err == nil, "Stream.Events[%d]: %w", i, err)
	}
	return errors.Join(errs...)
}

// validate returns an error for values that do not fit the action.
func (e *StreamEvent) validate() error {
	switch {
	case e.Conn < 0:
		return fmt.Errorf("Conn %d is negative: want 1 for the first connection, 2 for the next and so on, or 0 for all", e.Conn)
	case e.Action == StreamStall && e.For <= 0:
		return fmt.Errorf("For %v: must be positive", e.For)
	case e.Action == StreamCorrupt && e.Bit > 7:
		return fmt.Errorf("Bit %d: a byte has 0 to 7", e.Bit)
	}
	switch e.Action {
	case StreamCut, StreamStall, StreamCorrupt, StreamReset:
		return nil
	}
	return fmt.Errorf("action %q is none of cut, stall, corrupt_bit, reset", e.Action)
}

// StreamTap observes the segments of streams as they are sent and as they
// arrive. The segment is valid during the call. There are no pure ACKs:
// segments of the other direction acknowledge.
type StreamTap func(now mono.Time, p *Port, dir Direction, s *link.Segment)

// SetStreamTap replaces the StreamTap; nil removes it.
func (n *Net) SetStreamTap(t StreamTap) { n.streamTap = t }

var segmentFlags = [...]link.SegmentFlags{
	segmentData:   link.ACK,
	segmentSyn:    link.SYN,
	segmentSynAck: link.SYN | link.ACK,
	segmentFin:    link.FIN | link.ACK,
	segmentReset:  link.RST | link.ACK,
}

// nextSeq returns the sequence number of the next segment of s, whose numbers begin at 0. The SYN
// and the FIN take one each. finSent is set before the FIN gets its number.
func (s *Stream) nextSeq(kind segmentKind) uint64 {
	switch {
	case kind == segmentSyn || kind == segmentSynAck:
		return 0
	case kind != segmentFin && s.finSent:
		return s.written + 2
	}
	return s.written + 1
}

// recordReceived shows seg to the StreamTap, the observer of segments, and advances RCV.NXT past
// it. A segment that an impairment replaces by a reset is not received.
func (s *Stream) recordReceived(seg *segment) {
	if seg.reset {
		return
	}
	s.net.tapSegment(s.port, In, seg)
	s.rcvNxt = seg.seq + uint64(len(seg.data))
	if seg.kind == segmentSynAck || seg.kind == segmentFin {
		s.rcvNxt++
	}
}

// tapSegment shows seg to the StreamTap, if any, which observes the segments at each port.
func (n *Net) tapSegment(p *Port, dir Direction, seg *segment) {
	if n.streamTap == nil || p == nil {
		return
	}
	flags := segmentFlags[seg.kind]
	if seg.push {
		flags |= link.PSH
	}
	from := seg.sender
	n.streamTap(n.w.now, p, dir, &link.Segment{
		Src: from.local, Dst: from.remote, Seq: seg.seq, Ack: seg.ack, Flags: flags, Payload: seg.data,
	})
}

// tapReset shows the StreamTap, at port p, the RST with which the peer's host answers s if no
// stream for s is open there. It does nothing if p is nil.
func (s *Stream) tapReset(dir Direction, p *Port) {
	if s.net.streamTap == nil || p == nil {
		return
	}
	s.net.streamTap(s.net.w.now, p, dir, &link.Segment{
		Src: s.remote, Dst: s.local, Seq: s.rcvNxt, Ack: s.nextSeq(segmentData), Flags: link.RST | link.ACK,
	})
}
