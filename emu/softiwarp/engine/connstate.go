package engine

import (
	"errors"
	"fmt"
)

// ConnState is the state of a connection. It only increases.
type ConnState uint8

// The states of a connection.
const (
	// Dialing: the TCP stream is not connected.
	Dialing ConnState = iota
	// Starting: the MPA Request and Reply are exchanged.
	Starting
	// Requested: a responder has received the Request and waits for Accept or Reject.
	Requested
	// Accepted: a responder has accepted, and in the peer-to-peer model waits for the
	// initiator's ready-to-receive message.
	Accepted
	// Established: both sides may send.
	Established
	// Closing: one side closes the connection, or it has failed and a Terminate is being sent.
	Closing
	// Closed: the connection has ended. Err tells whether it failed.
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

// Errors of connections. Conn.Err also wraps errors of packages mpa and link.
var (
	// ErrRejected: the responder rejected the connection. PrivateData returns its data.
	ErrRejected = errors.New("the peer refused the connection")
	// ErrTerminated: the stream failed. The vendor error of completions has the reason.
	ErrTerminated = errors.New("the connection was terminated")
	// ErrCloseTimeout: the peer did not close its side in time.
	ErrCloseTimeout = errors.New("the peer did not close the connection in time")
	// ErrAborted: this side aborted the connection, or its queue pair was destroyed.
	ErrAborted = errors.New("the connection was aborted")

	errTruncated = errors.New("the peer closed the connection in the midst of a message")
)
