package agent

import (
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/verbs"
)

// Errors that errors.Is finds in what a client returns.
var (
	// ErrLost: the connection to the agent has ended. What was opened over it is
	// closed, so that errors.Is finds verbs.ErrClosed as well.
	ErrLost = errors.New("the connection to the agent is lost")
	// ErrKey: the other end does not have our key, or is no agent at all.
	ErrKey = errors.New("the two ends do not have the same key")
	// ErrVersion: the other end speaks another version of the protocol.
	ErrVersion = errors.New("the two ends speak different versions")
	// ErrCannot: the host of the device is not able to do this, whoever asks. It wraps
	// verbs.ErrNotSupported.
	ErrCannot = fmt.Errorf("this host cannot: %w", verbs.ErrNotSupported)
)

// sentinels are the errors that keep their identity across the connection. Their
// places are part of the protocol: add at the end.
var sentinels = []error{
	verbs.ErrNotSupported, verbs.ErrInvalid, verbs.ErrNoMemory, verbs.ErrBusy, verbs.ErrPerm,
	verbs.ErrNotFound, verbs.ErrTimeout, verbs.ErrClosed, verbs.ErrRejected, verbs.ErrOverrun,
	ErrCannot,
}

// failure is an error on its way.
type failure struct {
	Failed bool
	Text   string
	Is     uint64 // bit i: errors.Is(err, sentinels[i])
	// Ops are the verbs.OpErrors in the chain, from outside; Outer says that the first
	// is the error itself.
	Ops    []failedOp
	Outer  bool
	Reject []rejection // none or one
}

type failedOp struct{ Op, Obj, Cause string }

type rejection struct {
	Reason      uint16
	Text        string
	PrivateData []byte
}

// maxOps is how many verbs can be blamed at a time.
const maxOps = 4

func failureOf(err error) (f failure) {
	if err == nil {
		return f
	}
	f.Failed, f.Text = true, err.Error()
	for i, s := range sentinels {
		if errors.Is(err, s) {
			f.Is |= 1 << i
		}
	}
	_, f.Outer = err.(*verbs.OpError) //nolint:errorlint // whether it is the error itself is what we ask
	var op *verbs.OpError
	for rest := err; len(f.Ops) < maxOps && errors.As(rest, &op); rest = op.Err {
		f.Ops = append(f.Ops, failedOp{op.Op, op.Obj, fmt.Sprint(op.Err)})
	}
	var r *verbs.RejectError
	if errors.As(err, &r) {
		f.Reject = []rejection{{r.Reason, r.Text, r.PrivateData}}
	}
	return f
}

// err is the error again.
func (f *failure) err() error {
	if !f.Failed {
		return nil
	}
	var causes []error
	for i, s := range sentinels {
		if f.Is&(1<<i) != 0 {
			causes = append(causes, s)
		}
	}
	for _, r := range f.Reject {
		causes = append(causes, &verbs.RejectError{Reason: r.Reason, Text: r.Text, PrivateData: r.PrivateData})
	}
	for i := len(f.Ops) - 1; i >= 0; i-- {
		op := f.Ops[i]
		e := &verbs.OpError{Op: op.Op, Obj: op.Obj, Err: &remoteError{op.Cause, causes}}
		if i == 0 && f.Outer {
			return e
		}
		causes = []error{e}
	}
	return &remoteError{f.Text, causes}
}

// remoteError is an error of the agent's side, with what it wraps.
type remoteError struct {
	text   string
	causes []error
}

// Error is what it was there.
func (e *remoteError) Error() string { return e.text }

// Unwrap returns what it wraps.
func (e *remoteError) Unwrap() []error { return e.causes }

// lostError is what all calls of a lost connection return.
type lostError struct{ reason error }

// Error says why it was lost.
func (e *lostError) Error() string { return fmt.Sprintf("%v: %v", ErrLost, e.reason) }

// Unwrap returns what it means, and the reason.
func (e *lostError) Unwrap() []error { return []error{ErrLost, verbs.ErrClosed, e.reason} }
