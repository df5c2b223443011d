package softroce

import (
	"fmt"

	"github.com/fabrictest/fabrictest/emu/internal/drive"
	"github.com/fabrictest/fabrictest/verbs"
)

// object is what all handles have in common: the device they came from, and
// whether they have been closed. A closed handle refuses every verb, above all
// to be closed again: what it shares with others is no longer its to release.
type object struct {
	d      *Device
	closed bool // under the driver's lock
}

// enter begins a verb; Device.leave ends it.
func (o *object) enter(op string, c drive.Call) error {
	if err := o.d.enter(op, c); err != nil {
		return err
	}
	if o.closed {
		o.d.drv.Unlock()
		return &verbs.OpError{Op: op, Obj: o.d.cfg.Name, Err: fmt.Errorf("%w: the handle", verbs.ErrClosed)}
	}
	return nil
}

// control runs a verb that changes or queries the object.
func (o *object) control(op string, f func() error) error {
	if err := o.enter(op, drive.CallControl); err != nil {
		return err
	}
	defer o.d.leave()
	return f()
}

// close runs the verb that destroys the object.
func (o *object) close(op string, f func() error) error {
	return o.control(op, func() error {
		err := f()
		o.closed = err == nil
		return err
	})
}

func (o *object) base() *object { return o }

// own returns the handle x that a verb was given, if it is a live one of d's.
// The lock is held.
func own[T interface{ base() *object }](d *Device, op, what string, x any) (h T, err error) {
	if x == nil {
		return h, &verbs.OpError{Op: op, Err: fmt.Errorf("%w: no %s is given", verbs.ErrInvalid, what)}
	}
	h, ok := x.(T)
	if !ok || h.base().d != d {
		return h, foreign(op, what)
	}
	if h.base().closed {
		return h, &verbs.OpError{Op: op, Err: fmt.Errorf("%w: the %s", verbs.ErrClosed, what)}
	}
	return h, nil
}

// ownIfGiven hands x on to use, unless there is none: whether there must be is
// the engine's to say.
func ownIfGiven[T interface{ base() *object }](d *Device, op, what string, x any, use func(T)) error {
	if x == nil {
		return nil
	}
	h, err := own[T](d, op, what, x)
	if err == nil {
		use(h)
	}
	return err
}

// foreign is the error for an object that another device made.
func foreign(op, what string) error {
	return &verbs.OpError{Op: op, Err: fmt.Errorf("%w: the %s belongs to another device", verbs.ErrInvalid, what)}
}
