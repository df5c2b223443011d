package engine

import (
	"errors"
	"fmt"
)

// ConnState is how far a connection has got. It only moves on.
type ConnState uint8

// The states of a connection.
const (
	// Dialing: there is no stream yet.
	Dialing ConnState = iota
	// Starting: the start-up frames are exchanged.
	Starting
	// Requested: a responder has the Request, and waits for Accept or Reject.
	Requested
	// Accepted: a responder has accepted, and in the peer-to-peer model waits for
	// the initiator's first message.
	Accepted
	// Established: both sides know.
	Established
	// Closing: one side closes, or the connection has failed and the peer is
	// being told.
	Closing
	// Closed: nothing is left. Err says whether it ended in order.
	Closed
)

var connStates = [...]string{"dialing", "starting", "requested", "accepted", "established", "closing", "closed"}

// String names the state.
func (s ConnState) String() string {
	if int(s) < len(connStates) {
		return connStates[s]
	}
	return fmt.Sprintf("state %d", uint8(s))
}

// Why connections end, for errors.Is. Those of package mpa and of package link
// occur too.
var (
	// ErrRejected: the responder refused. PrivateData has what it said.
	ErrRejected = errors.New("the peer refused the connection")
	// ErrTerminated: the stream failed; the QP's Terminate says why.
	ErrTerminated = errors.New("the connection was terminated")
	// ErrCloseTimeout: the peer did not close its side in time.
	ErrCloseTimeout = errors.New("the peer did not close the connection in time")
	// ErrCutOff: this side broke the connection off, or took its queue pair away.
	ErrCutOff = errors.New("the connection was broken off")

	errTruncated = errors.New("the peer closed the connection in the midst of a message")
)
