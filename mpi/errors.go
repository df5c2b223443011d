package mpi

import (
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/mpi/env"
	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/window"
	"github.com/fabrictest/fabrictest/verbs"
)

// Classes of errors, for errors.Is.
var (
	ErrTruncate    = errors.New("message is longer than the buffer")
	ErrRank        = errors.New("no such rank")
	ErrTag         = errors.New("no such tag")
	ErrComm        = errors.New("communicator cannot be used")
	ErrRequest     = errors.New("request cannot be used so")
	ErrBuffer      = errors.New("no room in the attached buffer")
	ErrArg         = window.ErrArg
	ErrOp          = window.ErrOp
	ErrType        = window.ErrType
	ErrWin         = errors.New("window cannot be used")
	ErrRMASync     = window.ErrSync
	ErrRMARange    = window.ErrRange
	ErrRMAConflict = window.ErrConflict
	// ErrPeerLost: a rank, or the way to it, is gone for good.
	ErrPeerLost = errors.New("peer is lost")
	// ErrFinalized: the rank has ended.
	ErrFinalized = errors.New("the rank has ended")
	// ErrReady is what a ready send deserves whose receive is not there. Its sender
	// cannot know, so that nothing returns it: it is counted (Stats.P2P.NotReady), and
	// the message delivered all the same.
	ErrReady = errors.New("ready send without a receive")
)

// Error is one of a call.
type Error struct {
	Op   string // the call, as "Isend"
	Rank int    // who called, by its rank in the communicator
	Comm string // the communicator's name
	Err  error
}

func (e *Error) Error() string {
	return fmt.Sprintf("mpi: %s at rank %d of %s: %v", e.Op, e.Rank, e.Comm, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// RequestsError is of calls about several requests, of which some failed.
type RequestsError struct {
	// Errs has one for each request that the call is about, in their order: nil for
	// those that did not fail.
	Errs []error
}

func (e *RequestsError) Error() string {
	n := 0
	var first error
	at := 0
	for i, err := range e.Errs {
		if err == nil {
			continue
		}
		if n++; n == 1 {
			first, at = err, i
		}
	}
	return fmt.Sprintf("%d of %d requests failed, the first of them request %d: %v", n, len(e.Errs), at, first)
}

// Unwrap returns those that failed.
func (e *RequestsError) Unwrap() (all []error) {
	for _, err := range e.Errs {
		if err != nil {
			all = append(all, err)
		}
	}
	return all
}

// classified is an error of an engine with its class here.
type classified struct{ class, err error }

func (c *classified) Error() string   { return c.err.Error() }
func (c *classified) Unwrap() []error { return []error{c.class, c.err} }

// classify gives an error of the layers below its class.
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

// missed is classify for waits that need no fabric: who does not come to them is gone.
func classifyControl(err error) error {
	if errors.Is(err, env.ErrGone) || errors.Is(err, verbs.ErrTimeout) {
		return &classified{ErrPeerLost, fmt.Errorf("not all ranks can be met: %w", err)}
	}
	return err
}
