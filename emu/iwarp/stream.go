package iwarp

import (
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
)

// Stream is the DDP and RDMAP state with one peer. It must not be copied after Open.
type Stream struct {
	ep    *Endpoint
	owner Owner
	sendState

	reads       *nic.FIFO[peerRequest] // reads and atomics of the peer, of which the first is being answered; nil before the first
	recv        *Receive               // receive of the current Send; nil between messages
	parts       *partials              // control messages received in part; nil before the first
	term        *wire.Terminate        // Terminate that was sent or received
	policyState *policyState           // nil with the zero Policy

	recvMSN  [queues]wire.MSN // MSN of the next message expected, by queue
	recvLen  uint32           // octets of the current Send received
	writeLen uint32           // octets of the last Write received

	version     uint8
	state       state
	opcode      wire.Opcode // of the current Send
	startupDone bool        // connection setup is over: the peer has sent a message, or is the responder
	expectRTR   bool        // the next message is the peer's ready-to-receive message
	// afterWrite: the peer's last message, apart from responses, was a Write. inWrite: a Write
	// has been received in part.
	afterWrite, inWrite bool
}

// sendState is the state of requests and output.
type sendState struct {
	// The linked list of requests in posting order: first is the oldest, sending the first not
	// output completely, last the newest, oldestOutstanding the oldest that waits for a response.
	first, sending, last, oldestOutstanding *Request

	sendMSN          [queues]wire.MSN // MSN of the next message to send, by queue
	segmentsOutput   uint32           // segments that Output returned
	segmentsAccepted uint32           // of those, segments that the layer below has accepted
	ird, ord         uint16
	outstanding      uint16 // local reads and atomics without a response
	inProgress       source // source of the message that is partly sent
	preferred        source // source that goes first after the current message
}

// queues is the number of untagged queues.
const queues = 4

// state is the state of a stream.
type state uint8

const (
	closed      state = iota // not opened
	open                     // established
	terminating              // a Terminate is to be sent
	ended                    // nothing more is sent or received
	terminated               // ended, by a Terminate of the peer
)

// source is the origin of outgoing messages.
type source uint8

const (
	noSource    source = iota
	requester          // work requests
	responder          // responses to the peer's requests
	emptyWriter        // the empty Write of SendEmptyWrite
)

// Options are the negotiated parameters of a stream.
type Options struct {
	// IRD is the number of reads and atomics that the peer may have outstanding, ORD the
	// number of local ones.
	IRD, ORD uint16
	// Consortium selects DDP and RDMAP version 0, of the RDMA Consortium, instead of version 1.
	Consortium bool
	// Responder is set if the peer opened the connection. Its first message may be a Terminate
	// about the connection setup, which some stacks encode differently.
	Responder bool
	// PeerToPeer is set with Responder if the peer's first message is the ready-to-receive
	// message of RFC 6581. Immediate data after it does not belong to it.
	PeerToPeer bool
}

// Open resets s to an established stream. Requests and receives that it still held are not
// completed. The start-up of an initiator is done; that of a responder ends with the first segment.
func (s *Stream) Open(ep *Endpoint, owner Owner, o Options) {
	*s = Stream{ep: ep, owner: owner, version: wire.DDPVersion, state: open, startupDone: !o.Responder}
	s.ird, s.ord, s.expectRTR = o.IRD, o.ORD, o.Responder && o.PeerToPeer
	if o.Consortium {
		s.version = 0 // of DDP and RDMAP, as the RDMA Consortium defined them
	}
	for q := range queues {
		s.sendMSN[q], s.recvMSN[q] = wire.FirstMSN, wire.FirstMSN
	}
	if ep.Layer.Policy != (Policy{}) {
		s.policyState = new(policyState)
	}
}

// Opened reports whether Open was called. The zero Stream is not open and accepts no requests.
func (s *Stream) Opened() bool { return s.state != closed }

// Live reports whether the stream is established and has not ended.
func (s *Stream) Live() bool { return s.state == open }

// Idle reports whether all requests are complete, all reads of the peer are answered, and the layer
// below has accepted all segments. A stream that has ended is idle after its Terminate.
func (s *Stream) Idle() bool {
	switch s.state {
	case open:
		return s.first == nil && (s.reads == nil || s.reads.Len() == 0) && s.segmentsAccepted == s.segmentsOutput
	case terminating:
		return false
	default:
		return s.segmentsAccepted == s.segmentsOutput
	}
}

// WaitsForPeer reports whether the layer below has accepted all segments, and the stream has
// nothing to send until the peer sends something. It first executes local requests that are next,
// such as binds. A stream that is not open has no requests to execute: WaitsForPeer is Idle then.
func (s *Stream) WaitsForPeer() bool {
	if s.state != open {
		return s.Idle()
	}
	// nextSource executes local requests, which may end the stream.
	return s.segmentsAccepted == s.segmentsOutput && s.nextSource() == noSource && s.state == open
}

// Receiving reports whether a message of the peer has been received in part: a control message
// (s.parts), a Send, a Write, or the response to the oldest outstanding request.
func (s *Stream) Receiving() bool {
	if s.parts != nil {
		for q := range s.parts {
			if s.parts[q].begun {
				return true
			}
		}
	}
	return s.recv != nil || s.inWrite || s.oldestOutstanding != nil && s.oldestOutstanding.received > 0
}

// Ended returns the Terminate that ended the stream, or nil, and whether the peer sent it.
func (s *Stream) Ended() (t *wire.Terminate, received bool) { return s.term, s.state == terminated }

func (s *Stream) policy() *Policy     { return &s.ep.Layer.Policy }
func (s *Stream) counters() *Counters { return &s.ep.Layer.Count }
