package device

import (
	"fmt"

	"github.com/fabrictest/fabrictest/emu/internal/drive"
	"github.com/fabrictest/fabrictest/verbs"
)

// Object is embedded in all handles. It holds the device, and whether the handle is
// closed. All verbs of a closed handle fail, also a second Close.
type Object struct {
	D      *Device
	closed bool // under the driver's lock
}

// Enter locks the driver for a verb of the object. It fails if the device or the object is
// closed; otherwise Device.Leave must follow.
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

// Control runs f as a verb that queries or changes the object, with the device's lock held. It
// fails if the device or the object is closed.
func (o *Object) Control(op string, f func() error) error {
	if err := o.Enter(op, drive.CallControl); err != nil {
		return err
	}
	defer o.D.Leave()
	return f()
}

// Destroy runs f as the verb that destroys the object. If f succeeds, the object is closed.
func (o *Object) Destroy(op string, f func() error) error {
	return o.Control(op, func() error {
		err := f()
		o.closed = err == nil
		return err
	})
}

func (o *Object) object() *Object { return o }

// Handle is a pointer to a type that embeds Object.
type Handle interface{ object() *Object }

// HandleOrNil returns h if err is nil, otherwise err and a nil interface, not one that holds a nil
// pointer.
func HandleOrNil[I any](h I, err error) (I, error) {
	if err != nil {
		var none I
		return none, err
	}
	return h, nil
}

// CheckHandle returns x as a handle of type T. It fails unless x is an open handle of d. kind is
// the kind of handle in the error, such as "PD". The caller holds the device's lock.
func CheckHandle[T Handle](d *Device, op, kind string, x any) (h T, err error) {
	if x == nil {
		return h, &verbs.OpError{Op: op, Err: fmt.Errorf("%w: no %s is given", verbs.ErrInvalid, kind)}
	}
	h, ok := x.(T)
	if !ok || h.object().D != d {
		return h, ForeignHandleError(op, kind)
	}
	if h.object().closed {
		return h, &verbs.OpError{Op: op, Err: fmt.Errorf("%w: the %s", verbs.ErrClosed, kind)}
	}
	return h, nil
}

// CheckOptionalHandle calls set with x if x is an open handle of d, and fails otherwise. If x is
// nil, it does nothing, because the engine decides whether a handle is required.
func CheckOptionalHandle[T Handle](d *Device, op, kind string, x any, set func(T)) error {
	if x == nil {
		return nil
	}
	h, err := CheckHandle[T](d, op, kind, x)
	if err == nil {
		set(h)
	}
	return err
}

// ForeignHandleError is the error for a handle of another device.
func ForeignHandleError(op, kind string) error {
	return &verbs.OpError{Op: op, Err: fmt.Errorf("%w: the %s belongs to another device", verbs.ErrInvalid, kind)}
}
