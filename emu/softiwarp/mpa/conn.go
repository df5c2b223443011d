package mpa

import (
	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// state is the state of a Conn.
type state uint8

const (
	waitRequest     state = iota // responder: the Request is not received completely
	requestReceived              // responder: the Request waits for Accept or Reject
	waitReply                    // initiator: the Reply is not received completely
	fullOperation                // FPDUs are exchanged
	terminating                  // an error was reported, and one FPDU may still be sent
	finished                     // rejected, failed or lost: input is ignored
	stopped                      // by the policy StopOnBadReply: no more input or events
)

// Conn is one MPA connection, created by NewInitiator or NewResponder.
type Conn struct {
	cfg    Config
	policy *Policy
	count  *Counters
	state  state
	params Params

	request  wire.StartFrame // sent or received
	deadline mono.Time
	input
	streamEnd

	sendBlocked bool // a responder may not send before the first valid FPDU
	out         output
	streamPos   uint64 // stream offset of the next FPDU, after the Request or Reply
	mulpdu      int
	stale       [staleLen]byte // the buffer of short FPDUs, with the policy ReusePad
}

// input is the received part of the stream.
type input struct {
	in           []byte // input that Next has not consumed
	heldInput    []byte // input that the policy HoldFirst holds back
	holdNext     bool   // hold the next input back
	lastInput    mono.Time
	startFrame   []byte // received part of the peer's Request or Reply
	deframer     *wire.Deframer
	trailerSplit bool // the last input ended inside pad or CRC, and the policy is TrailerInOne
}

// streamEnd is the end of the stream.
type streamEnd struct {
	eof, lost, expired bool // events that Next has not reported yet
	eofReported        bool // EventEOF was reported
}

// NewInitiator returns a Conn that sends a Request. It panics if cfg is invalid.
func NewInitiator(now mono.Time, cfg Config) *Conn {
	c := newConn(cfg)
	c.state = waitReply
	c.setDeadline(now, c.cfg.ReplyTimeout)
	c.sendRequest(cfg.PrivateData)
	return c
}

// NewResponder returns a Conn that waits for a Request; MaySend says when it may send FPDUs. It
// panics if cfg is invalid.
func NewResponder(now mono.Time, cfg Config) *Conn {
	c := newConn(cfg)
	c.state = waitRequest
	c.setDeadline(now, c.cfg.RequestTimeout)
	return c
}

// newConn returns a Conn for NewInitiator and NewResponder, which set its state.
func newConn(cfg Config) *Conn {
	if err := cfg.Validate(); err != nil {
		panic(err)
	}
	c := &Conn{cfg: cfg.withDefaults(), deadline: mono.Never}
	c.policy, c.count = &c.cfg.Policy, c.cfg.Counters
	c.cfg.PrivateData = nil // NewInitiator sends it, and does not keep it
	// The policy RoundMSSDown also writes each FPDU by itself.
	c.out.align = c.cfg.Align || c.policy.RoundMSSDown
	c.params.IRD, c.params.ORD = c.cfg.IRD, c.cfg.ORD
	return c
}

// Input passes received octets, which TCP may have split anywhere. b must not change until Next
// reports false. The policy HoldFirst may keep the first input until more arrives; the policy
// ResponderSends may let a responder send after the initiator's first octets.
func (c *Conn) Input(now mono.Time, b []byte) {
	if len(c.in) > 0 {
		panic("mpa: Input before Next has consumed the previous input")
	}
	if len(b) == 0 || c.state == stopped {
		return
	}
	c.count.OctetsReceived += uint64(len(b))
	if c.holdNext && c.holdInput(b) {
		return
	}
	if c.heldInput != nil {
		b, c.heldInput = append(c.heldInput, b...), nil
	}
	c.lastInput = now
	if c.policy.ResponderSends >= AfterFirstOctets && c.state == fullOperation {
		c.sendBlocked = false
	}
	c.in = b
}

// holdInput implements the policy HoldFirst: it copies b, to process it when more input arrives,
// and reports whether it did. It does not if b has octets after its first FPDU.
func (c *Conn) holdInput(b []byte) bool {
	c.holdNext = false
	if _, rest, whole := wire.NewDeframer(c.params.In).Next(b); whole && len(rest) > 0 {
		return false
	}
	c.heldInput = append([]byte(nil), b...)
	return true
}

// InputEOF reports that the peer has closed its direction of the stream.
func (c *Conn) InputEOF() { c.eof = true }

// Lost reports that the stream was reset, timed out or never connected.
func (c *Conn) Lost() { c.lost = true }

// Next processes input and returns the next event. If there is none, it reports false, and has
// consumed the input.
func (c *Conn) Next() (e Event, ok bool) {
	if len(c.in) > 0 {
		if c.state == fullOperation {
			e, ok = c.nextFPDU()
		} else {
			e, ok = c.nextNonFPDU()
		}
		if ok {
			return e, true
		}
	}
	c.in = nil
	c.setFPDUDeadline()
	if c.eof || c.lost || c.expired {
		return c.nextEnd()
	}
	return e, false
}

// nextNonFPDU processes input before full operation, a Request or Reply. Input between the Request
// and its Reply is an error; input after the end of the connection is ignored.
func (c *Conn) nextNonFPDU() (e Event, ok bool) {
	switch c.state {
	case waitRequest, waitReply:
		return c.nextFrame()
	case requestReceived:
		return c.fail(wire.TermMPAFrame, CloseNow, ErrEarlyOctets), true
	default:
		c.count.OctetsIgnored += uint64(len(c.in))
		return e, false
	}
}

// nextEnd returns the event for the end of the stream (eof), its loss (lost) or an expired
// deadline, unless the connection has already ended. Each is reported once.
func (c *Conn) nextEnd() (e Event, ok bool) {
	eof, lost, expired := c.eof, c.lost, c.expired
	c.eof, c.lost, c.expired = false, false, false
	waiting := c.state == waitRequest || c.state == waitReply
	switch {
	case c.state == finished || c.state == stopped || c.state == terminating:
		if lost { // the error was reported; queued output cannot be sent
			c.state = finished
			c.out.drop()
		}
		return e, false
	case lost:
		// A peer that sent a part of its Reply understands the Request. Ask before fail changes the
		// state, which adviseFallback reads.
		fallback := len(c.startFrame) == 0 && c.adviseFallback()
		e = c.fail(wire.TermMPAClosed, CloseNow, ErrLost)
		e.Fallback = fallback
	case eof && waiting && len(c.startFrame) > 0:
		e = c.fail(wire.TermMPAFrame, CloseNow, ErrTruncatedFrame)
	case eof && c.state != fullOperation:
		fallback := c.adviseFallback()
		e = c.fail(wire.TermMPAClosed, CloseNow, ErrEOF)
		e.Kind, e.Fallback = EventEOF, fallback
	case eof && (c.deframer.Pending() > 0 || len(c.heldInput) > 0):
		e = c.fail(wire.TermMPAClosed, TerminateThenClose, ErrTruncatedFPDU)
	case eof && !c.eofReported:
		c.eofReported = true
		e = Event{Kind: EventEOF, Term: wire.TermMPAClosed, Err: ErrEOF}
	case expired && waiting:
		e = c.fail(wire.TermMPAClosed, CloseNow, ErrTimeout)
		e.Kind = EventTimeout
	case expired && c.state == fullOperation && c.deframer.Pending() > 0:
		e = c.fail(wire.TermMPAClosed, TerminateThenClose, ErrStalledFPDU)
	default:
		return e, false
	}
	return e, true
}

// setFPDUDeadline sets the deadline of an incomplete FPDU, or removes it if no FPDU is incomplete.
func (c *Conn) setFPDUDeadline() {
	if c.cfg.FPDUTimeout <= 0 || c.state != fullOperation {
		return
	}
	c.deadline = mono.Never
	if c.deframer.Pending() > 0 {
		c.setDeadline(c.lastInput, c.cfg.FPDUTimeout)
	}
}

// Deadline returns when Tick must be called, or mono.Never.
func (c *Conn) Deadline() mono.Time { return c.deadline }

// Tick records whether the deadline has passed. The caller must then call Next, for the event.
func (c *Conn) Tick(now mono.Time) {
	if !now.Before(c.deadline) {
		c.deadline = mono.Never
		c.expired = true
	}
}

// Params returns the parameters that are known so far.
func (c *Conn) Params() *Params { return &c.params }

// SetMSS sets TCP's segment size, from which MULPDU follows; 0 means the default. The policy
// RoundMSSDown rounds it down to a multiple of 8.
func (c *Conn) SetMSS(mss int) {
	if mss <= 0 {
		mss = defaultMSS
	}
	c.cfg.MSS = mss
	if c.policy.RoundMSSDown {
		mss &^= 7
	}
	c.mulpdu = wire.MULPDU(mss, c.params.Out.Markers)
}

// MULPDU returns the length of the longest ULPDU whose FPDU fits into a TCP segment.
// EventAccepted and Accept set it, and SetMSS may change it.
func (c *Conn) MULPDU() int { return c.mulpdu }

// MaySend reports whether FPDUs may be sent: in full operation, for a responder only after the
// first valid FPDU of the initiator, unless the policy ResponderSends lets it send earlier. After
// an error with TerminateThenClose, it is true until the Terminate was sent.
func (c *Conn) MaySend() bool {
	return c.state == fullOperation && !c.sendBlocked || c.state == terminating
}
