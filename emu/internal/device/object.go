package device

import (
	"fmt"

	"github.com/fabrictest/fabrictest/emu/internal/drive"
	"github.com/fabrictest/fabrictest/verbs"
)

// Object is what all handles have in common: the device they came from, and
// whether they have been closed. A closed handle refuses every verb, above all
// to be closed again: what it shares with others is no longer its to release.
type Object struct {
	D      *Device
	closed bool // under the driver's lock
}

// Enter begins a verb; Device.Leave ends it.
func (o *Object) Enter(op string, c drive.CallKind) error {
	if err := o.D.Enter(op, c); err != nil {
		return err
	}
	if o.closed {
		o.D.drv.Unlock()
		return o.D.opError(op, fmt.Errorf("%w: the handle", verbs.ErrClosed))
	}
	return nil
}

// Control runs a verb that changes or queries the object.
func (o *Object) Control(op string, f func() error) error {
	if err := o.Enter(op, drive.CallControl); err != nil {
		return err
	}
	defer o.D.Leave()
	return f()
}

// Destroy runs the verb that destroys the object.
func (o *Object) Destroy(op string, f func() error) error {
	return o.Control(op, func() error {
		err := f()
		o.closed = err == nil
		return err
	})
}

func (o *Object) base() *Object { return o }

// Handle is a pointer to what embeds Object.
type Handle interface{ base() *Object }

// CheckHandle returns the handle x that a verb was given, if it is a live one of d's. The
// lock is held.
func CheckHandle[T Handle](d *Device, op, what string, x any) (h T, err error) {
	if x == nil {
		return h, &verbs.OpError{Op: op, Err: fmt.Errorf("%w: no %s is given", verbs.ErrInvalid, what)}
	}
	h, ok := x.(T)
	if !ok || h.base().D != d {
		return h, ForeignHandleError(op, what)
	}
	if h.base().closed {
		return h, &verbs.OpError{Op: op, Err: fmt.Errorf("%w: the %s", verbs.ErrClosed, what)}
	}
	return h, nil
}

// CheckOptionalHandle hands x on to use, unless there is none: whether there must be is
// the engine's to say.
func CheckOptionalHandle[T Handle](d *Device, op, what string, x any, use func(T)) error {
	if x == nil {
		return nil
	}
	h, err := CheckHandle[T](d, op, what, x)
	if err == nil {
		use(h)
	}
	return err
}

// ForeignHandleError is the error for an object that another device made.
func ForeignHandleError(op, what string) error {
	return &verbs.OpError{Op: op, Err: fmt.Errorf("%w: the %s belongs to another device", verbs.ErrInvalid, what)}
}
