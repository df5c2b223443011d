package mpa

import (
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softiwarp/wire"
)

// state is where a Conn is in its life.
type state uint8

const (
	waitRequest state = iota // responder: the Request has not come, or not all of it
	asked                    // responder: the Request waits for Accept or Reject
	waitReply                // initiator: the Reply has not come, or not all of it
	full                     // FPDUs
	lastWord                 // an error was reported, and one FPDU may still be sent
	over                     // refused, failed or lost: nothing is taken any more
	hung                     // of a defect: nothing happens any more
)

// Conn is one MPA connection. Make it with NewInitiator or NewResponder.
type Conn struct {
	cfg    Config
	q      *Defects
	count  *Counters
	state  state
	params Params

	in   []byte // what Input was given and Next has not looked at
	held []byte // of a defect: what was given earlier and is stuck

	eof, lost, expired bool // have happened, and are not reported yet
	ended              bool // EventEOF was reported

	frame    []byte          // the peer's start-up frame, as far as it has come
	request  wire.StartFrame // sent or received
	deadline mono.Time
	heard    mono.Time // when octets came last

	deframer *wire.Deframer
	fenced   bool // a responder has to be silent until a valid FPDU has come
	stuck    bool // of a defect: hold the next input back
	cut      bool // of a defect: the trailer under way was cut

	out    output
	at     uint64 // where in the stream the next FPDU will be, from the octet after the start-up frame on
	mulpdu int
	stale  [staleLen]byte // of a defect: where siw builds short FPDUs
}

// NewInitiator returns a Conn that has a Request to send. It panics if cfg does
// not Validate.
func NewInitiator(now mono.Time, cfg Config) *Conn {
	if err := cfg.Validate(); err != nil {
		panic(err)
	}
	c := newConn(cfg)
	c.state = waitReply
	c.setDeadline(now, c.cfg.ReplyTimeout)
	c.sendRequest(cfg.PrivateData)
	return c
}

// NewResponder returns a Conn that waits for a Request. It panics if cfg does
// not Validate.
func NewResponder(now mono.Time, cfg Config) *Conn {
	if err := cfg.Validate(); err != nil {
		panic(err)
	}
	c := newConn(cfg)
	c.state = waitRequest
	c.fenced = true
	c.setDeadline(now, c.cfg.RequestTimeout)
	return c
}

func newConn(cfg Config) *Conn {
	c := &Conn{cfg: cfg.withDefaults(), deadline: mono.Never}
	c.q, c.count = &c.cfg.Defects, c.cfg.Counters
	c.cfg.PrivateData = nil // the Request has its own copy
	c.out.align = c.cfg.Align || c.q.MSSRoundedDown
	c.params.IRD, c.params.ORD = c.cfg.IRD, c.cfg.ORD
	c.SetMSS(c.cfg.MSS)
	return c
}

// Input takes octets of the stream, cut anywhere. They are looked at by Next,
// which has to be called until it has no more to tell before b is used again.
func (c *Conn) Input(now mono.Time, b []byte) {
	if len(c.in) > 0 {
		panic("mpa: Input before Next has used up what was given before")
	}
	if len(b) == 0 || c.state == hung {
		return
	}
	c.count.OctetsReceived += uint64(len(b))
	if c.stuck && c.overlooks(b) {
		return
	}
	if c.held != nil {
		b, c.held = append(c.held, b...), nil
	}
	c.heard = now
	if c.q.EarlyFence && c.state == full {
		c.fenced = false
	}
	c.in = b
}

// overlooks is Defects.FirstFPDUStuck: what comes is held back, until more comes. TCP may
// bring that together with the first.
func (c *Conn) overlooks(b []byte) bool {
	c.stuck = false
	if _, rest, whole := wire.NewDeframer(c.params.In).Next(b); whole && len(rest) > 0 {
		return false
	}
	c.held = append([]byte(nil), b...)
	return true
}

// InputEOF says that the peer has closed its half of the stream.
func (c *Conn) InputEOF(now mono.Time) { c.eof = true }

// Lost says that the stream is gone: reset, timed out, never there.
func (c *Conn) Lost(now mono.Time) { c.lost = true }

// Next returns what happened next, if anything did.
func (c *Conn) Next() (e Event, ok bool) {
	if len(c.in) > 0 {
		if c.state == full {
			e, ok = c.nextFPDU()
		} else {
			e, ok = c.nextInput()
		}
		if ok {
			return e, true
		}
	}
	c.in = nil
	c.watchFPDU()
	if c.eof || c.lost || c.expired {
		return c.nextEnd()
	}
	return e, false
}

// nextInput looks at what comes before, or after, the FPDUs.
func (c *Conn) nextInput() (e Event, ok bool) {
	switch c.state {
	case waitRequest, waitReply:
		return c.nextFrame()
	case asked:
		return c.fail(wire.TermMPAFrame, CloseNow, ErrEarlyOctets), true
	default:
		c.count.OctetsIgnored += uint64(len(c.in))
		return e, false
	}
}

// nextEnd reports what ended the stream, once, and only if something is left to
// end.
func (c *Conn) nextEnd() (e Event, ok bool) {
	eof, lost := c.eof, c.lost
	c.eof, c.lost, c.expired = false, false, false
	waiting := c.state == waitRequest || c.state == waitReply
	switch {
	case c.state == over || c.state == hung || c.state == lastWord:
		if lost { // it was told why this ends: what was still to be said cannot be
			c.state = over
			c.out.drop()
		}
		return e, false
	case lost:
		fallback := len(c.frame) == 0 && c.fallback()
		e = c.fail(wire.TermMPAClosed, CloseNow, ErrLost)
		e.Fallback = fallback
	case eof && waiting && len(c.frame) > 0:
		e = c.fail(wire.TermMPAFrame, CloseNow, ErrTruncatedFrame)
	case eof && c.state != full:
		fallback := c.fallback()
		e = c.fail(wire.TermMPAClosed, CloseNow, ErrEOF)
		e.Kind, e.Fallback = EventEOF, fallback
	case eof && (c.deframer.Pending() > 0 || len(c.held) > 0):
		e = c.fail(wire.TermMPAClosed, TerminateThenClose, ErrTruncatedFPDU)
	case eof && !c.ended:
		c.ended = true
		e = Event{Kind: EventEOF, Term: wire.TermMPAClosed, Err: ErrEOF}
	case !eof && waiting:
		e = c.fail(wire.TermMPAClosed, CloseNow, ErrTimeout)
		e.Kind = EventTimeout
	case !eof && c.state == full && c.deframer.Pending() > 0:
		e = c.fail(wire.TermMPAClosed, TerminateThenClose, ErrStalledFPDU)
	default:
		return e, false
	}
	return e, true
}

// watchFPDU sets the deadline by which an FPDU that has begun must go on.
func (c *Conn) watchFPDU() {
	if c.cfg.FPDUTimeout <= 0 || c.state != full {
		return
	}
	c.deadline = mono.Never
	if c.deframer.Pending() > 0 {
		c.setDeadline(c.heard, c.cfg.FPDUTimeout)
	}
}

// Deadline is when Tick has to be called, or mono.Never.
func (c *Conn) Deadline() mono.Time { return c.deadline }

// Tick notices whose time is up. Call Next afterwards.
func (c *Conn) Tick(now mono.Time) {
	if !now.Before(c.deadline) {
		c.deadline = mono.Never
		c.expired = true
	}
}

// Params is what is known of the connection so far.
func (c *Conn) Params() *Params { return &c.params }

// SetMSS says that TCP's segments now have at most mss octets; 0 that nobody
// knows.
func (c *Conn) SetMSS(mss int) {
	if mss <= 0 {
		mss = defaultMSS
	}
	c.cfg.MSS = mss
	if c.q.MSSRoundedDown {
		mss &^= 7
	}
	c.mulpdu = wire.MULPDU(mss, c.params.Out.Markers)
}

// MULPDU is the longest ULPDU whose FPDU fits into a segment. It may change with
// EventAccepted, Accept and SetMSS.
func (c *Conn) MULPDU() int { return c.mulpdu }

// MaySend reports whether FPDUs may be sent: the start-up is over, and if this is
// the responder, a valid FPDU has come from the initiator. After an error that
// leaves room for a Terminate, it is true until that was sent.
func (c *Conn) MaySend() bool {
	return c.state == full && !c.fenced || c.state == lastWord
}

// Over reports whether nothing will come from this Conn any more, neither events
// nor anything to write: its stream can be closed.
func (c *Conn) Over() bool { return c.state == over && c.out.empty() }
