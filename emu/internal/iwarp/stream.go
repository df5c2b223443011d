package iwarp

import (
	"github.com/fabrictest/fabrictest/emu/softiwarp/wire"
)

// Stream is DDP and RDMAP with one peer. It must not be copied once it is in
// use.
type Stream struct {
	ep    *Endpoint
	owner Owner

	// The requests, in the order in which they were posted, and among them: the
	// oldest that is not retired, the first that has not left as a whole, the
	// newest, and the oldest that waits for a response.
	first, sending, last, oldestRead *Request

	reads *readQueue      // of the peer; nil before the first
	recv  *Receive        // what the Send under way fills; nil if none is
	parts *partials       // control messages in pieces; nil before the first
	term  *wire.Terminate // what the stream ended with
	siw   *siwState       // nil without Defects

	sendMSN          [queues]wire.MSN // of the next message that is sent, by queue
	recvMSN          [queues]wire.MSN // of the next message that is to come
	segmentsOutput   uint32           // segments that Output gave
	segmentsAccepted uint32           // those of them that the layer below has accepted
	recvLen          uint32           // octets in recv
	writeLen         uint32           // length of the Write that came last, so far

	ird, ord    uint16
	outstanding uint16 // our reads and atomics without a response

	version      uint8
	state        state
	inProgress   source      // whose message is half out
	turn         source      // who is next, if both have something
	opcode       wire.Opcode // of the message that fills recv
	startupDone  bool        // the start-up is over: the peer has sent a message, or need not
	termReceived bool        // term is the peer's
	expectRTR    bool        // the peer's first message, which has not come, is an RTR
	// The peer's last message, responses apart, was a Write; or is one still.
	afterWrite, inWrite bool
}

// queues is how many queues of untagged messages there are.
const queues = 4

// state is how far a stream has got.
type state uint8

const (
	closed      state = iota // not opened
	open                     // in full operation
	terminating              // a Terminate is to be sent
	ended                    // nothing more comes or goes
)

// source is where an outgoing message comes from.
type source uint8

const (
	noSource  source = iota
	requester        // the program's requests
	responder        // answers to the peer's
	nudger           // noSource: it is a nudge
)

// Options is what the two ends of a stream have agreed on.
type Options struct {
	// IRD is how many reads and atomics the peer may have under way, ORD how many
	// we may.
	IRD, ORD uint16
	// Consortium makes it version 0 of DDP and RDMAP, that of the RDMA
	// Consortium, not 1.
	Consortium bool
	// Responder says that the stream was asked for by the peer, whose first
	// message may still be about the start-up: some Terminates read otherwise then.
	Responder bool
	// PeerToPeer says of such a stream that the peer's first message only tells
	// that it is ready (RFC 6581): immediate data behind it does not belong to it.
	PeerToPeer bool
}

// Open makes s a stream in full operation, whatever it was. What it still held
// is forgotten, not completed.
func (s *Stream) Open(ep *Endpoint, owner Owner, o Options) {
	*s = Stream{ep: ep, owner: owner, ird: o.IRD, ord: o.ORD, version: wire.DDPVersion, state: open}
	s.startupDone, s.expectRTR = !o.Responder, o.Responder && o.PeerToPeer
	if o.Consortium {
		s.version = 0
	}
	for q := range queues {
		s.sendMSN[q], s.recvMSN[q] = wire.FirstMSN, wire.FirstMSN
	}
	if ep.Layer.Defects != (Defects{}) {
		s.siw = new(siwState)
	}
}

// Opened reports whether the stream has been opened. One that has not, as the zero
// value is, takes nothing.
func (s *Stream) Opened() bool { return s.state != closed }

// Live reports whether the stream is in full operation.
func (s *Stream) Live() bool { return s.state == open }

// Quiet reports whether nothing is under way: every request has been completed
// and every read of the peer answered, as far as the layer below has said. A
// stream that has ended is quiet when its Terminate has left.
func (s *Stream) Quiet() bool {
	switch s.state {
	case open:
		return s.first == nil && (s.reads == nil || s.reads.count == 0) && s.segmentsAccepted == s.segmentsOutput
	case terminating:
		return false
	default:
		return s.segmentsAccepted == s.segmentsOutput
	}
}

// Stuck reports whether nothing more can leave: what is under way, if anything
// is, waits for the peer.
func (s *Stream) Stuck() bool {
	if s.state != open {
		return s.Quiet()
	}
	return s.segmentsAccepted == s.segmentsOutput && s.nextSource() == noSource && s.state == open
}

// Receiving reports whether a message of the peer has begun to arrive and not
// ended.
func (s *Stream) Receiving() bool {
	if s.parts != nil {
		for q := range s.parts {
			if s.parts[q].begun {
				return true
			}
		}
	}
	return s.recv != nil || s.inWrite || s.oldestRead != nil && s.oldestRead.received > 0
}

// Ended returns the Terminate that the stream ended with, ours or the peer's,
// and whether it is the peer's; nil if it has not ended, or without one.
func (s *Stream) Ended() (t *wire.Terminate, received bool) {
	return s.term, s.termReceived
}

func (s *Stream) defects() *Defects   { return &s.ep.Layer.Defects }
func (s *Stream) counters() *Counters { return &s.ep.Layer.Count }
