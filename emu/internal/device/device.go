// Package device implements the verbs that all emulated NICs share: protection domains, memory
// regions and windows, completion queues, shared receive queues and asynchronous events, with the
// locking of verb calls. The providers softroce, softiwarp and dgiwarp embed Device and add queue
// pairs, address handles and connections. The package knows no protocol.
package device

import (
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/drive"
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/verbs"
)

// Device is the part of an opened device that all providers share.
type Device struct {
	name  string
	base  *nic.Base
	hooks Hooks

	drv       drive.Driver
	asyncCond drive.Cond   // notified of asynchronous events
	blocked   []drive.Cond // one entry for each blocked call
	closed    bool
	watch     *portWatch // nil if the port is not watched
}

// Hooks are the functions of a provider. All but QPHandle may be nil.
type Hooks struct {
	// QPHandle returns the handle of the engine's queue pair qp.
	QPHandle func(qp any) verbs.QP
	// OnEvent is called for every asynchronous event, with the lock held.
	OnEvent func(nic.Event)
	// BeforeControl is called before every control verb, with the lock held.
	BeforeControl func()
	// CreateAH creates an address handle.
	CreateAH func(*PD, verbs.AHAttr) (verbs.AH, error)
}

// Init prepares d before its driver is started.
func (d *Device) Init(name string, base *nic.Base, hooks Hooks) {
	d.name, d.base, d.hooks = name, base, hooks
}

// Start attaches the driver, which is running already.
func (d *Device) Start(drv drive.Driver) {
	d.drv = drv
	drv.Lock(drive.CallWait)
	defer drv.Unlock()
	d.asyncCond = drv.NewCond(drive.WaitReason("asynchronous event of " + d.name))
	d.base.Observer = d.onEvent
}

// Name is the device's name in device lists.
func (d *Device) Name() string { return d.name }

// Driver is the device's driver.
func (d *Device) Driver() drive.Driver { return d.drv }

// Closed reports whether the device was closed. The lock is held.
func (d *Device) Closed() bool { return d.closed }

// BlockedCalls is the number of calls that wait in the device. The lock is held.
func (d *Device) BlockedCalls() int { return len(d.blocked) }

// onEvent wakes WaitAsync when the NIC has queued an asynchronous event. The event stays in the NIC
// until it is read, so that closing an object removes its events.
func (d *Device) onEvent(e nic.Event) {
	if d.hooks.OnEvent != nil {
		d.hooks.OnEvent(e)
	}
	d.asyncCond.Notify()
}

// DeliverCompletionEvents delivers the NIC's events of armed completion queues.
func (d *Device) DeliverCompletionEvents() {
	for {
		cq, ok := d.base.NextCompletionEvent()
		if !ok {
			return
		}
		cq.Owner.(*CQ).deliverEvent()
	}
}

// Enter locks the driver for a verb, and runs the provider's hook if that is a control verb. It
// fails if the device is closed; otherwise Leave must follow.
func (d *Device) Enter(op string, c drive.CallKind) error {
	d.drv.Lock(c)
	if d.closed {
		d.drv.Unlock()
		return d.opError(op, verbs.ErrClosed)
	}
	if c == drive.CallControl && d.hooks.BeforeControl != nil {
		d.hooks.BeforeControl()
	}
	return nil
}

// Leave ends a verb: the driver sends the packets that the verb caused, and the lock is released.
func (d *Device) Leave() {
	if !d.closed {
		d.drv.Pump()
	}
	d.drv.Unlock()
}

// Control runs f as a verb that queries, creates or changes an object of the device, with the lock
// held. It fails if the device is closed.
func (d *Device) Control(op string, f func() error) error {
	if err := d.Enter(op, drive.CallControl); err != nil {
		return err
	}
	defer d.Leave()
	return f()
}

// Wait waits on cond until ready returns true, the timeout has passed or the device is closed; a
// negative timeout is none. The lock is held.
func (d *Device) Wait(op string, cond drive.Cond, timeout time.Duration, ready func() bool) error {
	until := mono.Never
	if timeout >= 0 {
		until = d.drv.Now().Add(timeout)
	}
	d.blocked = append(d.blocked, cond)
	defer func() {
		i := slices.Index(d.blocked, cond)
		d.blocked = slices.Delete(d.blocked, i, i+1)
	}()
	for {
		if d.closed { // comes first: closing ends connections, which may make the call ready
			return d.opError(op, verbs.ErrClosed)
		}
		if ready() {
			return nil
		}
		left := verbs.Forever
		if until != mono.Never {
			if left = until.Sub(d.drv.Now()); left <= 0 {
				return d.opError(op, verbs.ErrTimeout)
			}
		}
		cond.Wait(left)
	}
}

// WaitAsync returns the next asynchronous event.
func (d *Device) WaitAsync(timeout time.Duration) (verbs.AsyncEvent, error) {
	const op = "get_async_event"
	if err := d.Enter(op, drive.CallWait); err != nil {
		return verbs.AsyncEvent{}, err
	}
	defer d.Leave()
	var e nic.Event
	err := d.Wait(op, d.asyncCond, timeout, func() (ok bool) {
		e, ok = d.base.NextEvent()
		return ok
	})
	if err != nil {
		return verbs.AsyncEvent{}, err
	}
	return d.asyncEvent(&e), nil
}

// asyncEvent returns the NIC's event with the handles of its objects.
func (d *Device) asyncEvent(e *nic.Event) verbs.AsyncEvent {
	out := verbs.AsyncEvent{Type: e.Type, Port: e.Port}
	if e.QP != nil {
		out.QP = d.hooks.QPHandle(e.QP)
	}
	if e.CQ != nil {
		out.CQ = e.CQ.Owner.(*CQ)
	}
	if e.SRQ != nil {
		out.SRQ = e.SRQ.Owner.(*SRQ)
	}
	return out
}

// Shutdown closes the device: blocked calls return ErrClosed, and the driver stops. Before that it
// calls last, with the lock held. It reports false if the device was closed already.
func (d *Device) Shutdown(last func()) bool {
	d.drv.Lock(drive.CallControl)
	if d.closed {
		d.drv.Unlock()
		return false
	}
	last()
	d.closed = true
	for _, cond := range d.blocked {
		cond.Notify()
	}
	d.drv.Unlock()
	d.drv.Close()
	if d.watch != nil {
		d.watch.Close()
	}
	return true
}

// Attr returns the device attributes that follow from the limits.
func (d *Device) Attr() verbs.DeviceAttr {
	l := &d.base.Limits
	return verbs.DeviceAttr{
		MaxQP: l.QPs, MaxQPWR: l.QPWR, MaxSGE: l.SGE, MaxSGERead: l.SGE, MaxInline: l.Inline,
		MaxCQ: l.CQs, MaxCQE: l.CQE, MaxMR: l.MRs, MaxMRSize: 1 << 47, MaxMW: l.MRs, MaxPD: l.PDs, MaxAH: l.AHs,
		MaxSRQ: l.SRQs, MaxSRQWR: l.SRQWR, MaxSRQSGE: l.SGE, MaxXRCD: l.XRCDs,
		MaxQPRdAtomic: l.RdAtomic, MaxQPInitAtomic: l.RdAtomic,
		MaxMcastGroups: l.McastGroups, MaxMcastQPs: l.McastQPs, Ports: 1,
	}
}

// CheckOpen returns an error if the device is closed.
func (d *Device) CheckOpen(op string) error {
	if err := d.Enter(op, drive.CallWait); err != nil {
		return err
	}
	d.drv.Unlock()
	return nil
}

// CheckPort returns an error for other ports than 1, or if the device is closed.
func (d *Device) CheckPort(op string, port uint8) error {
	if err := d.CheckOpen(op); err != nil {
		return err
	}
	if port != 1 {
		return d.opError(op, fmt.Errorf("%w: port %d, there is only port 1", verbs.ErrInvalid, port))
	}
	return nil
}

// CheckIndex returns an error if index is not in a table of the given size.
func (d *Device) CheckIndex(op string, index, size int) error {
	if index < 0 || index >= size {
		return d.opError(op, fmt.Errorf("%w: entry %d of a table of %d", verbs.ErrNotFound, index, size))
	}
	return nil
}

func (d *Device) opError(op string, err error) error {
	return &verbs.OpError{Op: op, Obj: d.name, Err: err}
}
