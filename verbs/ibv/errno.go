//go:build ibverbs && linux && cgo

package ibv

import (
	"errors"
	"fmt"
	"slices"
	"syscall"

	"github.com/fabrictest/fabrictest/verbs"
)

// deviceError is an error of the library or the kernel. It wraps the errno and the error of
// package verbs for it.
type deviceError struct {
	errno syscall.Errno
	kind  error  // nil if package verbs has none
	hint  string // how to solve the problem; may be empty
}

// Error returns the error of package verbs, the errno and the hint.
func (e *deviceError) Error() string {
	s := e.errno.Error()
	if e.kind != nil && e.kind.Error() != s {
		s = fmt.Sprintf("%v (%s)", e.kind, s)
	}
	if e.hint != "" {
		s += ": " + e.hint
	}
	return s
}

// Unwrap returns the errno and the error of package verbs.
func (e *deviceError) Unwrap() []error {
	if e.kind == nil {
		return []error{e.errno}
	}
	return []error{e.kind, e.errno}
}

// kinds maps the errnos of devices, libraries and kernel to errors of package verbs.
var kinds = map[syscall.Errno]error{
	syscall.EINVAL:          verbs.ErrInvalid,
	syscall.EFAULT:          verbs.ErrInvalid,
	syscall.ERANGE:          verbs.ErrInvalid,
	syscall.EMSGSIZE:        verbs.ErrInvalid,
	syscall.ENOMEM:          verbs.ErrNoMemory,
	syscall.ENOSPC:          verbs.ErrNoMemory,
	syscall.ENOBUFS:         verbs.ErrNoMemory,
	syscall.EMFILE:          verbs.ErrNoMemory,
	syscall.ENFILE:          verbs.ErrNoMemory,
	syscall.EBUSY:           verbs.ErrBusy,
	syscall.EADDRINUSE:      verbs.ErrBusy,
	syscall.EISCONN:         verbs.ErrBusy,
	syscall.EPERM:           verbs.ErrPerm,
	syscall.EACCES:          verbs.ErrPerm,
	syscall.ENOENT:          verbs.ErrNotFound,
	syscall.ENODEV:          verbs.ErrNotFound,
	syscall.ENXIO:           verbs.ErrNotFound,
	syscall.ENODATA:         verbs.ErrNotFound,
	syscall.EADDRNOTAVAIL:   verbs.ErrNotFound,
	syscall.EOPNOTSUPP:      verbs.ErrNotSupported,
	syscall.ENOSYS:          verbs.ErrNotSupported,
	syscall.EPROTONOSUPPORT: verbs.ErrNotSupported,
	syscall.EAFNOSUPPORT:    verbs.ErrNotSupported,
	syscall.ETIMEDOUT:       verbs.ErrTimeout,
	syscall.ECONNREFUSED:    verbs.ErrRejected,
}

// errnoError returns the error of an errno; its sign does not matter.
func errnoError(errno int) *deviceError {
	if errno < 0 {
		errno = -errno
	}
	return &deviceError{errno: syscall.Errno(errno), kind: kinds[syscall.Errno(errno)]}
}

// shimError returns the error for the errno that a function of our C shim returned; nil for 0.
func shimError[T ~int32](errno T) error {
	if errno == 0 {
		return nil
	}
	return errnoError(int(errno))
}

// cause returns the error of a failed call that set errno.
func cause(errno error) error {
	var e syscall.Errno
	if errors.As(errno, &e) && e != 0 {
		return errnoError(int(e))
	}
	return errors.New("the library gave no reason")
}

// nilError returns the error of a call that returned the pointer p and set errno, if p is nil.
func nilError[T any](p *T, errno error) error {
	if p != nil {
		return nil
	}
	return cause(errno)
}

// hinted adds a hint for the user to an error with one of these errnos.
func hinted(err error, hint string, errnos ...syscall.Errno) error {
	var e *deviceError
	if errors.As(err, &e) && slices.Contains(errnos, e.errno) {
		e.hint = hint
	}
	return err
}

// opError returns the OpError of a verb on an object; nil if err is nil.
func opError(op, obj string, err error) error {
	if err == nil {
		return nil
	}
	return &verbs.OpError{Op: op, Obj: obj, Err: err}
}

// invalid returns the error for an argument that is refused before the call of libibverbs.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", verbs.ErrInvalid, fmt.Sprintf(format, args...))
}
