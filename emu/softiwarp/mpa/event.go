package mpa

import (
	"fmt"

	"github.com/fabrictest/fabrictest/emu/softiwarp/wire"
)

// EventKind says what happened.
type EventKind uint8

// Events.
const (
	// EventRequest: a responder has a valid Request. Answer with Accept or Reject.
	// Until then the initiator has to be silent.
	EventRequest EventKind = iota + 1
	// EventAccepted: an initiator has a valid Reply, and may send.
	EventAccepted
	// EventRejected: the responder refused, and MPA is over. The peer may have
	// left the stream open; nothing more is to be said on it.
	EventRejected
	// EventULPDU: a ULPDU came, whole and verified.
	EventULPDU
	// EventError: the peer or the negotiation failed. Nothing more comes after it.
	EventError
	// EventTimeout: the start-up frame did not come in time. Close the stream.
	EventTimeout
	// EventEOF: the peer's half of the stream has ended between two FPDUs. This
	// side may still send.
	EventEOF
)

var eventNames = [...]string{"no event", "request", "accepted", "rejected", "ULPDU", "error", "timeout", "EOF"}

// String prints the kind's name.
func (k EventKind) String() string {
	if int(k) < len(eventNames) {
		return eventNames[k]
	}
	return fmt.Sprintf("event %d", uint8(k))
}

// Reaction is what is left to do with the stream.
type Reaction uint8

// Reactions.
const (
	// GoOn: nothing.
	GoOn Reaction = iota
	// TerminateThenClose: one more FPDU may be sent, a Terminate with Event.Term.
	// Then, or at once, close. MPA itself does not close after such an error.
	TerminateThenClose
	// CloseNow: close the stream. If there is still something in Output it goes
	// first; mostly there is not.
	CloseNow
)

// String prints the reaction.
func (r Reaction) String() string {
	return [...]string{"go on", "terminate, then close", "close now", "?"}[r&3]
}

// Event is what happened, in the order in which it did. What it points to is
// borrowed until the next call of Next, Input or Accept.
type Event struct {
	Kind     EventKind
	Reaction Reaction
	// Fallback, with EventError or EventEOF of an initiator, says that the peer
	// seems not to know the enhanced start-up: another connection with
	// Config.MaxRevision 1 may succeed.
	Fallback bool
	// Term is the error as MPA numbers it, for EventError, EventTimeout and
	// EventEOF.
	Term wire.TermError
	// Err says the same to a human, and in more detail; made once, so compare
	// with errors.Is.
	Err error
	// ULPDU is that of EventULPDU; of a defect, that of an FPDU that was wrong.
	ULPDU []byte
	// Params and PrivateData are those of EventRequest, EventAccepted and
	// EventRejected. PrivateData is the application's: without the enhanced data.
	Params      *Params
	PrivateData []byte
}
