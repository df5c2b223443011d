package agent

import (
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/control"
	"github.com/fabrictest/fabrictest/verbs"
)

// Errors of a client.
var (
	// ErrLost: the connection to the agent has ended, and everything opened over it is
	// closed. Such errors also wrap verbs.ErrClosed.
	ErrLost = errors.New("the connection to the agent is lost")
	// ErrKey: the other end does not have the key, or is no agent.
	ErrKey = errors.New("the two ends do not have the same key")
	// ErrVersion: the other end has another version of the protocol.
	ErrVersion = control.ErrVersion
	// ErrHostCannot: the device's host cannot do this. It wraps verbs.ErrNotSupported.
	ErrHostCannot = fmt.Errorf("this host cannot: %w", verbs.ErrNotSupported)
)

// sentinels are the errors that keep their identity across the connection. The index is
// part of the protocol: append only.
var sentinels = []error{
	verbs.ErrNotSupported, verbs.ErrInvalid, verbs.ErrNoMemory, verbs.ErrBusy, verbs.ErrPerm,
	verbs.ErrNotFound, verbs.ErrTimeout, verbs.ErrClosed, verbs.ErrRejected, verbs.ErrOverrun,
	ErrHostCannot,
}

// failure is an encoded error.
type failure struct {
	Failed bool
	Text   string
	Is     uint64 // bit i: errors.Is(err, sentinels[i])
	// Ops are the verbs.OpErrors in the chain, the outermost first; Outer reports that the
	// first is the error itself.
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

// maxOps limits the OpErrors of an error.
const maxOps = 4

// failureOf converts an error to the form in which it is sent: its text, the sentinels and the
// RejectError that it wraps (Reject has one element or none), and its OpErrors, the outermost
// first, at most maxOps. Outer says that err is itself the outermost OpError.
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
	_, f.Outer = err.(*verbs.OpError) //nolint:errorlint // the error itself is needed, not a wrapped one
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

// err returns an error like the one that failureOf converted on the other host, with the same text,
// sentinels (such as verbs.ErrInvalid), OpErrors and RejectError; nil if f is no failure. f.Ops are
// the OpErrors, the outermost first; f.Outer says that no other error wraps that one.
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

// remoteError is an error of the agent, with the errors that it wraps.
type remoteError struct {
	text   string
	causes []error
}

func (e *remoteError) Error() string { return e.text }

func (e *remoteError) Unwrap() []error { return e.causes }

// lostError is the error of all calls on a lost connection.
type lostError struct{ reason error }

func (e *lostError) Error() string { return fmt.Sprintf("%v: %v", ErrLost, e.reason) }

func (e *lostError) Unwrap() []error { return []error{ErrLost, verbs.ErrClosed, e.reason} }
