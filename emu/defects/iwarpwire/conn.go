package iwarpwire

import (
	"net/netip"
	"slices"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// Conn is one end of a stream with defects: what a driver of streams drives in
// place of the sound end.
type Conn struct {
	edge      *Edge
	q         *Defects
	sound     Sound
	initiator bool
	mss       int
	phase     phase
	own, peer frames
	framing   framing

	// What comes in.
	heard   bool        // anything at all
	partial []byte      // an FPDU or frame that has not arrived completely
	inAt    uint64      // where in the stream that begins, from the octet after the start-up frame on
	reframe wire.Framer // of what the sound side is given
	begun   bool        // a segment has come
	last    bool        // the segment before ended its message
	next    counters    // of what was taken
	altered []alteration
	before  []byte     // the segment before the last that the sound side was given
	given   []byte     // that last one
	kept    []*segment // WritesPlacedLate: of a Write
	lateAt  mono.Time  // when they are placed

	// What goes out.
	vectors [][]byte // for the sound side
	said    []byte   // by the sound side, and not whole yet
	saidAt  uint64   // where in its stream that begins
	replied bool     // the sound side's start-up frame has been seen
	waits   []byte   // ResponderSpeaksFirst: the Request, until something is heard
	marking marking
	midst   bool       // the message under way has not ended
	opened  bool       // an FPDU has been sent
	rtr     *segment   // RTRLate: until a message has gone by
	tail    []*segment // TailFirst, SegmentEdgeLost: what waits for the segment behind it
	tailLen int        // octets in it
	after   []*segment // what follows the segment that is being sent
	pair    []byte     // TwoPerFPDU: waits for a second
	sent    counters
	told    bool     // Resynchronises has complained
	ready   bool     // in Edge.ready
	chunks  [][]byte // to be written
	taken   int      // of the first of them
	queued  int      // octets in them
	end     link.StreamEnd
}

// phase is how far a stream has got, as far as what comes in is concerned.
type phase uint8

const (
	starting phase = iota // the peer's start-up frame is to come, or more of it
	passing               // what comes is handed on as it is
	full                  // FPDUs
	deaf                  // what comes is ignored
)

// framing is how the two directions are framed: on the wire, and as the sound
// side believes.
type framing struct {
	wireIn, soundIn, wireOut, soundOut wire.Framing
}

// counters count the untagged messages of one direction by queue.
type counters struct {
	messages [4]uint32
	octets   [4]uint32 // of the message under way, or of all
	skipped  [4]uint32 // messages that are not counted
	all      uint32    // messages of all queues
	first    uint64    // the offset that the tagged message under way began with
}

// alteration is the header of a segment as it was received, and as it was passed to the
// engine.
type alteration struct{ received, passed []byte }

// queueLimit is how much a Conn keeps of what a full stream does not take.
const queueLimit = 256 << 10

// Connected says that the stream is there.
func (c *Conn) Connected(now mono.Time, local, remote netip.AddrPort, mss int) {
	c.edge.now, c.mss = now, mss
	if c.q.ResponderSpeaksFirst && !c.initiator {
		c.write(earlyReply())
	}
	c.sound.Connected(now, local, remote, mss)
}

// Failed says that the stream could not be made, or is broken.
func (c *Conn) Failed(now mono.Time, err error) {
	c.edge.now = now
	c.placeLate()
	if c.phase != deaf {
		c.sound.Failed(now, err)
	}
}

// Input gives octets that have arrived.
func (c *Conn) Input(now mono.Time, b []byte) {
	c.edge.now = now
	c.hear()
	switch c.phase {
	case starting:
		c.partial = append(c.partial, b...)
		c.takeFrame()
	case passing:
		c.sound.Input(now, b)
	case full:
		c.takeFPDUs(b)
	}
}

// hear notes that the peer has said something, which some wait for.
func (c *Conn) hear() {
	if !c.heard {
		c.heard = true
		c.write(c.waits)
		c.waits = nil
	}
}

// InputEOF says that the peer has ended its direction in order.
func (c *Conn) InputEOF(now mono.Time) {
	c.edge.now = now
	if c.phase == deaf {
		return
	}
	if c.phase == starting {
		c.endFrame()
	}
	c.placeLate()
	c.pass()
	c.sound.InputEOF(now)
}

// pass hands on what has come as it is, and all that comes.
func (c *Conn) pass() {
	b := c.partial
	c.partial, c.phase = nil, passing
	if len(b) > 0 {
		c.sound.Input(c.edge.now, b)
	}
}

// Output gives what is to be written next, and says what becomes of the stream
// behind it.
func (c *Conn) Output(into [][]byte) ([][]byte, link.StreamEnd) {
	c.pull()
	if c.end == link.StreamAbort {
		return into, c.end
	}
	if len(c.chunks) == 0 {
		return into, c.end
	}
	for i, b := range c.chunks {
		if i == 0 {
			b = b[c.taken:]
		}
		if len(into) == cap(into) || i > 0 && c.q.SegmentsUnaligned {
			break
		}
		into = append(into, b)
	}
	return into, link.StreamOpen
}

// Sent says that the stream took n more octets of what Output gave.
func (c *Conn) Sent(now mono.Time, n int) {
	c.edge.now = now
	c.queued -= n
	c.taken += n
	for len(c.chunks) > 0 && c.taken >= len(c.chunks[0]) {
		c.taken -= len(c.chunks[0])
		c.chunks = c.chunks[1:]
	}
}

// pull moves what the sound side has to write through the defects.
func (c *Conn) pull() {
	for c.end == link.StreamOpen && c.queued < queueLimit {
		bufs, end := c.sound.Output(c.vectors[:0])
		if end == link.StreamOpen && len(bufs) == 0 {
			break
		}
		if c.hangs(end) {
			return
		}
		if end != link.StreamOpen {
			c.release()
			c.end = end
			break
		}
		b := slices.Concat(bufs...)
		clear(c.vectors[:cap(c.vectors)])
		c.sound.Sent(c.edge.now, len(b))
		c.say(b)
	}
	c.unpair()
}

// hangs is Defects.BadRequestHangs: a stream that is to end since its Request was
// no good does not.
func (c *Conn) hangs(end link.StreamEnd) bool {
	if c.q.BadRequestHangs && end == link.StreamClose && !c.initiator && !c.replied && c.heard {
		c.phase = deaf
	}
	return c.q.BadRequestHangs && c.phase == deaf
}

// release lets go of what was held back, since nothing follows.
func (c *Conn) release() {
	if c.rtr != nil {
		c.emit(c.rtr)
		c.rtr = nil
	}
	c.releaseTail()
	c.unpair()
}

// say takes what the sound side writes: its start-up frame, then FPDUs.
func (c *Conn) say(b []byte) {
	c.said = append(c.said, b...)
	if !c.replied {
		c.replied = true
		b, c.said = c.said, nil
		c.sendFrame(b)
		return
	}
	for c.end == link.StreamOpen {
		f, ok := cut(c.said, c.saidAt, c.framing.soundOut.Markers)
		if !ok {
			return
		}
		c.said, c.saidAt = c.said[len(f.raw):], c.saidAt+uint64(len(f.raw))
		c.send(&segment{octets: slices.Clone(f.ulpdu())})
	}
}

// write queues octets.
func (c *Conn) write(b []byte) {
	if len(b) == 0 {
		return
	}
	c.chunks = append(c.chunks, b)
	c.queued += len(b)
	c.wake()
}

// wake has the driver ask for output.
func (c *Conn) wake() {
	if !c.ready {
		c.ready = true
		c.edge.ready = append(c.edge.ready, c)
	}
}

// reset breaks the stream.
func (c *Conn) reset() {
	c.chunks, c.queued, c.taken, c.end, c.phase = nil, 0, 0, link.StreamAbort, deaf
	c.sound.Failed(c.edge.now, link.ErrReset)
}

// refuse ends the stream with a Terminate for what the sound side would not mind.
func (c *Conn) refuse(e wire.TermError) {
	c.emit(terminate(e))
	c.end, c.phase = link.StreamClose, deaf
	c.wake()
	c.sound.Failed(c.edge.now, link.ErrReset)
}
