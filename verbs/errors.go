package verbs

import (
	"errors"
	"fmt"
)

// Errors that errors.Is finds in what a verb returned. They mean what the errno
// of the same name means in libibverbs.
var (
	// ErrNotSupported: this device cannot (EOPNOTSUPP).
	ErrNotSupported = errors.New("not supported")
	// ErrInvalid: an argument, or the object's state, forbids it (EINVAL).
	ErrInvalid = errors.New("invalid argument")
	// ErrNoMemory: a queue is full or a limit of the device is reached (ENOMEM).
	ErrNoMemory = errors.New("out of resources")
	// ErrBusy: something still uses the object (EBUSY).
	ErrBusy = errors.New("in use")
	// ErrPerm: the caller may not (EPERM).
	ErrPerm = errors.New("not permitted")
	// ErrNotFound: there is no such device, object or table entry (ENOENT).
	ErrNotFound = errors.New("not found")
	// ErrTimeout: the time given to a waiting call has passed (ETIMEDOUT).
	ErrTimeout = errors.New("timed out")
	// ErrClosed: the object, or the device it came from, has been closed.
	ErrClosed = errors.New("closed")
	// ErrRejected: the peer refused the connection; a *RejectError says why.
	ErrRejected = errors.New("connection rejected")
	// ErrOverrun: a completion queue lost completions and is unusable.
	ErrOverrun = errors.New("completion queue overrun")
)

// OpError says which verb failed on which object, and why.
type OpError struct {
	Op  string // verb, e.g. "modify_qp"
	Obj string // object, e.g. "qp 0x11"
	Err error
}

// Error names verb, object and cause.
func (e *OpError) Error() string {
	if e.Obj == "" {
		return fmt.Sprintf("%s: %v", e.Op, e.Err)
	}
	return fmt.Sprintf("%s %s: %v", e.Op, e.Obj, e.Err)
}

// Unwrap returns the cause.
func (e *OpError) Unwrap() error { return e.Err }

// RejectError is a refused connection: why, and what the peer said with it.
type RejectError struct {
	Reason      uint16 // REJ reason code of the InfiniBand CM, or the one nearest; 0 if none was given
	Text        string // the reason in words
	PrivateData []byte
}

// Error says why the peer refused.
func (e *RejectError) Error() string {
	return fmt.Sprintf("connection rejected: %s (reason %d)", e.Text, e.Reason)
}

// Is makes errors.Is(err, ErrRejected) true.
func (e *RejectError) Is(target error) bool { return target == ErrRejected }
