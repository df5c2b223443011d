package iwarp

import (
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// Layer is the state that all streams of a NIC share.
type Layer struct {
	NIC    *nic.Base
	Policy Policy
	Count  Counters

	atomics atomicUnit
}

// Endpoint is the state that all streams of a queue pair share.
type Endpoint struct {
	Layer *Layer
	PD    nic.PD
	QPN   uint32
	// Access holds the queue pair's access flags. Remote access needs them and the memory's.
	Access verbs.Access
}

// RemoteAccess is the set of all remote access flags.
const RemoteAccess = verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic

// ExecuteLocal executes a Local Invalidate or Bind request, and returns its status.
func (ep *Endpoint) ExecuteLocal(w *nic.Work) verbs.WCStatus {
	switch mem := ep.Layer.NIC.Mem; {
	case w.Op == verbs.OpLocalInv && mem.Invalidate(w.Invalidate, ep.PD, ep.QPN) != nil:
		return verbs.WCLocProtErr
	case w.Op == verbs.OpBindMW && mem.Bind(w.Window, w.Bind) != nil:
		return verbs.WCMWBindErr
	}
	return verbs.WCSuccess
}

// Owner is the queue pair of a stream. The stream calls these methods from within its own;
// they must not call any method of the stream except Fail.
type Owner interface {
	// NextReceive takes the oldest receive off its queue for a message that begins to arrive,
	// or returns nil if the queue is empty. The stream owns the receive until Received.
	NextReceive() *Receive
	// Received completes a receive. The stream fills in Opcode, ByteLen, Flags and the fields
	// that Flags select, or Opcode and Status of an error.
	Received(r *Receive, wc verbs.WC, solicited bool)
	// Completed reports the status of a request, Retired that the stream no longer uses it.
	// Requests retire in the order of posting.
	Completed(r *Request, status verbs.WCStatus)
	Retired(r *Request)
	// Ended reports that the stream has ended, once and after all other calls. All requests and the
	// current receive are complete. If end.Terminate is set, Output returns one more segment.
	Ended(end End)
}

// Receive is a receive work request that a stream fills.
type Receive struct {
	nic.Receive
	PD nic.PD // protection domain of its memory
	// MemoryStatus is the error status of a receive whose memory is invalid. It is WCSuccess if the
	// receive can be used.
	MemoryStatus verbs.WCStatus
}

// End describes why a stream ended.
type End struct {
	Cause Cause
	// Error is the error of the received Terminate or, if Terminate is set, of the sent one.
	Error     wire.TermError
	Terminate bool
}

// Cause is the kind of event that ended a stream.
type Cause uint8

// Causes.
const (
	// ByOwner: Fail was called.
	ByOwner Cause = iota + 1
	// ByRequest: a local work request failed.
	ByRequest
	// ByPeer: the peer sent an invalid segment.
	ByPeer
	// ByTerminate: the peer sent a Terminate.
	ByTerminate
	// ByClose: Close was called. This is not an error.
	ByClose
)
