package mpa

import (
	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
)

// EventKind is the kind of an Event.
type EventKind uint8

// Events.
const (
	// EventRequest: a responder received a valid Request. Call Accept or Reject. The initiator
	// may not send before the Reply.
	EventRequest EventKind = iota + 1
	// EventAccepted: an initiator received a valid Reply and may send.
	EventAccepted
	// EventRejected: the responder rejected the connection. The peer may have left the stream
	// open, but nothing may be sent on it.
	EventRejected
	// EventULPDU: a complete and verified ULPDU was received.
	EventULPDU
	// EventError: the peer sent something invalid or negotiation failed. No event follows.
	EventError
	// EventTimeout: the Request or Reply did not arrive in time. Close the stream.
	EventTimeout
	// EventEOF: the peer has closed its direction between two FPDUs. This side may still send.
	EventEOF
)

var eventNames = [...]string{"no event", "request", "accepted", "rejected", "ULPDU", "error", "timeout", "EOF"}

// String prints the kind's name.
func (k EventKind) String() string { return eventNames[k] }

// Reaction is what the owner must do with the stream.
type Reaction uint8

// Reactions.
const (
	// GoOn: continue.
	GoOn Reaction = iota
	// TerminateThenClose: close the stream, optionally after a Terminate with Event.Term.
	TerminateThenClose
	// CloseNow: close the stream after the remaining Output, if there is any.
	CloseNow
)

// String prints the reaction.
func (r Reaction) String() string {
	return [...]string{"go on", "terminate, then close", "close now"}[r]
}

// Event is an event of a Conn. Its memory is valid until the next call of Next, Input or Accept.
type Event struct {
	Kind     EventKind
	Reaction Reaction
	// Fallback is set in EventError and EventEOF of an initiator if the peer seems not to support
	// enhanced connection setup: Config.MaxRevision 1 may succeed.
	Fallback bool
	// Term is the Terminate error of EventError, EventTimeout and EventEOF.
	Term wire.TermError
	// Err is the error in more detail, for errors.Is.
	Err error
	// ULPDU is set in EventULPDU, and by DeliverUnchecked in EventError of an invalid FPDU.
	ULPDU []byte
	// Params and PrivateData are set in EventRequest, EventAccepted and EventRejected.
	// PrivateData does not include the enhanced data.
	Params      *Params
	PrivateData []byte
}
