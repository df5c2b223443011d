package verbs

import (
	"errors"
	"fmt"
)

// Errors that verbs return; test for them with errors.Is. They correspond to the
// errno values of libibverbs.
var (
	// ErrNotSupported: the device does not support the operation (EOPNOTSUPP).
	ErrNotSupported = errors.New("not supported")
	// ErrInvalid: an argument or the state of the object is invalid (EINVAL).
	ErrInvalid = errors.New("invalid argument")
	// ErrNoMemory: a queue is full or a limit of the device is reached (ENOMEM).
	ErrNoMemory = errors.New("out of resources")
	// ErrBusy: another object still uses this object (EBUSY).
	ErrBusy = errors.New("in use")
	// ErrPerm: the operation is not permitted (EPERM).
	ErrPerm = errors.New("not permitted")
	// ErrNotFound: there is no such device, object or table entry (ENOENT).
	ErrNotFound = errors.New("not found")
	// ErrTimeout: the timeout of a blocking call has expired (ETIMEDOUT).
	ErrTimeout = errors.New("timed out")
	// ErrClosed: the object or its device has been closed.
	ErrClosed = errors.New("closed")
	// ErrRejected: the peer rejected the connection; see RejectError.
	ErrRejected = errors.New("connection rejected")
	// ErrOverrun: the completion queue overflowed and is unusable.
	ErrOverrun = errors.New("completion queue overrun")
)

// OpError is the failure of a verb on an object.
type OpError struct {
	Op  string // verb, e.g. "modify_qp"
	Obj string // object, e.g. "qp 0x11"
	Err error
}

// Error returns the verb, the object and the cause.
func (e *OpError) Error() string {
	if e.Obj == "" {
		return fmt.Sprintf("%s: %v", e.Op, e.Err)
	}
	return fmt.Sprintf("%s %s: %v", e.Op, e.Obj, e.Err)
}

// Unwrap returns the cause.
func (e *OpError) Unwrap() error { return e.Err }

// RejectError is a connection that the peer rejected.
type RejectError struct {
	Reason      uint16 // InfiniBand CM REJ reason, or the closest equivalent; 0 if none
	Text        string
	PrivateData []byte
}

// Error returns the text and the number of the reason.
func (e *RejectError) Error() string {
	return fmt.Sprintf("connection rejected: %s (reason %d)", e.Text, e.Reason)
}

// Is makes errors.Is(err, ErrRejected) true.
func (e *RejectError) Is(target error) bool { return target == ErrRejected }
