package mpi

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/mpi/window"
	"github.com/fabrictest/fabrictest/verbs"
)

// Error classes, for errors.Is.
var (
	ErrTruncate    = errors.New("message is longer than the buffer")
	ErrRank        = errors.New("no such rank")
	ErrTag         = errors.New("no such tag")
	ErrComm        = errors.New("communicator cannot be used")
	ErrRequest     = errors.New("invalid use of a request")
	ErrBuffer      = errors.New("no space in the attached buffer")
	ErrArg         = window.ErrArg
	ErrOp          = window.ErrOp
	ErrType        = window.ErrType
	ErrWin         = errors.New("window cannot be used")
	ErrRMASync     = window.ErrSync
	ErrRMARange    = window.ErrRange
	ErrRMAConflict = window.ErrConflict
	// ErrPeerLost: a rank has exited or become unreachable.
	ErrPeerLost = errors.New("peer is lost")
	// ErrFinalized: the rank has been finalized.
	ErrFinalized = errors.New("the rank has ended")
	// ErrReady is the class of a ready send without a posted receive. No call returns it, because
	// the sender cannot know: the message is delivered and counted in Stats.P2P.NotReady.
	ErrReady = errors.New("ready send without a receive")
)

// Error is the error of a call.
type Error struct {
	Op   string // the call, such as "Isend"
	Rank int    // of the caller in the communicator
	Comm string // name of the communicator
	Err  error
}

func (e *Error) Error() string {
	return fmt.Sprintf("mpi: %s at rank %d of %s: %v", e.Op, e.Rank, e.Comm, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// RequestsError is the error of a call on several requests.
type RequestsError struct {
	// Errs has one entry per request of the call, nil for those that succeeded.
	Errs []error
}

func (e *RequestsError) Error() string {
	failed := append(e.Unwrap(), nil) // nil: failed[0] exists even if no request failed
	at := slices.IndexFunc(e.Errs, func(err error) bool { return err != nil })
	return fmt.Sprintf("%d of %d requests failed, the first of them request %d: %v", len(failed)-1, len(e.Errs), at, failed[0])
}

// Unwrap returns the errors that are not nil.
func (e *RequestsError) Unwrap() []error {
	return slices.DeleteFunc(slices.Clone(e.Errs), func(err error) bool { return err == nil })
}

// classified adds an error class of this package to an error of a lower layer.
type classified struct{ class, err error }

func (c *classified) Error() string   { return c.err.Error() }
func (c *classified) Unwrap() []error { return []error{c.class, c.err} }

// classify adds the error class to an error of mpi/p2p or mpi/window.
func classify(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, p2p.ErrTruncated):
		return &classified{ErrTruncate, err}
	case errors.Is(err, p2p.ErrLost), errors.Is(err, p2p.ErrProtocol), errors.Is(err, window.ErrLost):
		return &classified{ErrPeerLost, err}
	}
	return err
}

// classifyControl adds the error class to an error of the out-of-band control channel.
func classifyControl(err error) error {
	if errors.Is(err, transport.ErrGone) || errors.Is(err, verbs.ErrTimeout) {
		return &classified{ErrPeerLost, fmt.Errorf("not all ranks can be reached: %w", err)}
	}
	return err
}

// ErrorHandler handles the error of a call; the call returns its result. It runs without
// the rank's lock and may call the runtime.
type ErrorHandler func(*Comm, error) error

// ErrorsAreFatal is an ErrorHandler that aborts all ranks.
func ErrorsAreFatal(c *Comm, err error) error {
	c.rank.abort(1, err.Error())
	return err
}

// SetErrorHandler sets the handler for errors of this communicator, and of communicators
// and windows created from it later. With nil, the default, calls return their errors.
func (c *Comm) SetErrorHandler(h ErrorHandler) { c.handler = h }

// raise wraps the error of a call and passes it to the communicator's error handler, if there is
// one. The caller does not hold the lock of the rank.
func (c *Comm) raise(call string, err error) error {
	if err == nil {
		return nil
	}
	if c != nil && c.rank.calls != nil {
		c.rank.calls.raised(classify(err))
	}
	if c == nil {
		return &Error{Op: call, Rank: Undefined, Comm: "no communicator", Err: err}
	}
	err = &Error{Op: call, Rank: c.me, Comm: c.name, Err: classify(err)}
	if c.handler == nil {
		return err
	}
	return c.handler(c, err)
}
