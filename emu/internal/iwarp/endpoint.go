package iwarp

import (
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/softiwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// Layer is what all streams of a NIC share.
type Layer struct {
	NIC     *nic.Base
	Defects Defects
	Count   Counters

	atomics atomicUnit
}

// Endpoint is what all streams of a queue pair share.
type Endpoint struct {
	Layer *Layer
	PD    nic.PD
	QPN   uint32
	// Access is what peers may do, whatever the memory that they name permits.
	Access verbs.Access
}

// RemoteAccess is all that a peer can be permitted.
const RemoteAccess = verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic

// Owner is what a stream needs of its queue pair. Its methods are called from
// within those of the stream and must not call it back, but for Fail.
type Owner interface {
	// NextReceive takes the oldest receive off its queue, for a message that has
	// begun to arrive; nil if none waits. It stays the stream's, unchanged, until
	// Received.
	NextReceive() *Receive
	// Received completes a receive. Of a success Opcode, ByteLen, Flags and what
	// they call for are filled in; of a failure Opcode and Status.
	Received(r *Receive, wc verbs.WC, solicited bool)
	// Completed reports how a request ended, Retired that its place is free. The
	// requests of a stream retire in the order in which they were posted.
	Completed(r *Request, status verbs.WCStatus)
	Retired(r *Request)
	// Ended is the last that an owner hears, once: the stream has failed, all its
	// requests and the receive it held have been completed. If end.Terminate is
	// set, Output has one more segment.
	Ended(end End)
}

// Receive is a receive work request that a stream fills.
type Receive struct {
	nic.Receive
	PD nic.PD // that its memory is in
	// Unfit says why nothing can be received into it, be it of no length; WCSuccess
	// if something can.
	Unfit verbs.WCStatus
}

// End is how a stream failed.
type End struct {
	Cause Cause
	// Error is the reason in the words of a Terminate: the peer's, or the one that
	// the peer is told if Terminate is set.
	Error     wire.TermError
	Terminate bool
}

// Cause says where the reason for the end of a stream lies.
type Cause uint8

// Causes.
const (
	// ByOwner: Fail was called.
	ByOwner Cause = iota + 1
	// ByRequest: a work request could not be carried out here.
	ByRequest
	// ByPeer: the peer sent what it must not.
	ByPeer
	// ByTerminate: the peer sent a Terminate.
	ByTerminate
	// ByClose: Close was called; nothing failed.
	ByClose
)

// String names the cause.
func (c Cause) String() string {
	return [...]string{"none", "owner", "request", "peer", "terminate", "close", "?", "?"}[c&7]
}
