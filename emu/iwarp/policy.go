package iwarp

import "github.com/fabrictest/fabrictest/emu/iwarp/wire"

// Policy has the decisions in which real devices differ. The zero value follows the RFCs.
type Policy struct {
	ReceivePolicy
	SendPolicy
	Terminate TerminatePolicy
}

// ReceivePolicy is the policy of segments that are received.
type ReceivePolicy struct {
	// HeaderByOpcode takes the opcode for the kind of the header, and ignores the T flag.
	HeaderByOpcode bool
	// AnyReadQueue ignores queue number and offset of a Read Request.
	AnyReadQueue bool
	// WritesInOrder refuses a Write whose segments are not in the order of their offsets.
	WritesInOrder bool
	// ReadWithoutRight lets the peer read memory that does not allow remote reads.
	ReadWithoutRight bool
	// AcceptShortResponse completes a read whose response ends early.
	AcceptShortResponse bool
	// CheckEmptyResponse requires an empty Read Response to name the sink of its request.
	CheckEmptyResponse bool
	// CheckFirstResponse compares only the first segment of a Read Response with its request.
	CheckFirstResponse bool
	// KeepAfterInvalidate only completes the receive in error if a Send's invalidation fails.
	KeepAfterInvalidate bool
	// IgnoreSolicited raises no solicited events.
	IgnoreSolicited bool
	// NoExtensions refuses the messages of RFC 7306.
	NoExtensions bool
	// RoundUpIRD accepts one read more than the next power of two.
	RoundUpIRD bool
}

// SendPolicy is the policy of requests and responses.
type SendPolicy struct {
	// RoundUpORD rounds the limit of outstanding reads up to a power of two.
	RoundUpORD bool
	// EmptyReadRepeats answers an empty read that was queued with the octets of the read before.
	EmptyReadRepeats bool
	// CompleteEarly completes a Send or Write before earlier reads.
	CompleteEarly bool
}

// TerminatePolicy is the policy of errors that end a stream.
type TerminatePolicy struct {
	// LongReadSilent and OpcodeChangeSilent send no Terminate for a Read Request with a
	// payload, and for a message that changes its opcode.
	LongReadSilent, OpcodeChangeSilent bool
	// MidMessageSilent sends no Terminate while a message is sent in part.
	MidMessageSilent bool
	// WrapIsLocal reports a Write beyond the offset space as a local error, a read not at all.
	WrapIsLocal bool
	// LongIsNoBuffer reports a message longer than its receive as one without a receive.
	LongIsNoBuffer bool
	// ExcessReadIsStream reports a read beyond the IRD as an error of the stream.
	ExcessReadIsStream bool
	// UnexpectedIsLocal reports a Read Response without a request as a local error.
	UnexpectedIsLocal bool
	// Order is the order of the fields in the first octets of a Terminate.
	Order wire.TerminateOrder
	// PayloadLength reports the length of a segment without its headers.
	PayloadLength bool
	// NoOperationHeader leaves the header out if the version or the opcode is wrong.
	NoOperationHeader bool
	// ReadAsReceived shows a Read Request as it was received, with its size as its MSN.
	ReadAsReceived bool
	// InvalidateFlag sets the flag of an absent RDMAP header if an invalidation fails.
	InvalidateFlag bool
}

// policyState is the state that a stream keeps for some policies.
type policyState struct {
	nextSTag wire.STag // where the next segment of the current Write must start
	nextTO   uint64
	current  wire.ReadRequest // the read that is being answered, as received
}

// inOrder implements the policy WritesInOrder, which refuses a Write whose segments are not
// contiguous: it reports whether a segment of n octets continues the current Write. begun is false
// for the first segment of a Write.
func (f *policyState) inOrder(begun bool, t *wire.Tagged, n uint64) bool {
	ok := !begun || t.STag == f.nextSTag && t.TO == f.nextTO
	f.nextSTag, f.nextTO = t.STag, t.TO+n
	return ok
}

// beginRead stores the read that is answered next. With repeat, a read of no octets is answered
// with the octets of the previous read, a defect of soft-iWARP of Linux.
func (f *policyState) beginRead(r *wire.ReadRequest, repeat bool) {
	if repeat && r.Size == 0 {
		r.Size, r.SrcSTag, r.SrcTO = f.current.Size, f.current.SrcSTag, f.current.SrcTO
	}
	f.current = *r
}
