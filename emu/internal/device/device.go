// Package device gives the shape of package verbs to what all emulated NICs have
// in common: the handles of domains, memory, completion and shared receive
// queues, and the discipline of entering a device, leaving it and waiting in it.
// A provider embeds Device and adds what is its own: queue pairs, addresses,
// connections.
package device

import (
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/drive"
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/link/portwatch"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/verbs"
)

// Device is the part of an opened device that all providers share.
type Device struct {
	name  string
	base  *nic.Base
	hooks Hooks

	drv     drive.Driver
	async   drive.Cond   // for asynchronous events, which wait in the NIC
	waiting []drive.Cond // where calls wait, one entry for each
	closed  bool
	watch   *portwatch.Watch // nil where nobody watches the port
}

// Hooks are what a provider has to say. All but Owner may be left out.
type Hooks struct {
	// Owner returns the handle of a queue pair that an event is about.
	QPHandle func(qp any) verbs.QP
	// Observe hears of every event when it is reported, with the lock held.
	OnEvent func(nic.Event)
	// BeforeControl runs, with the lock held, before a verb changes anything.
	BeforeControl func()
	// CreateAH makes an address handle.
	CreateAH func(*PD, verbs.AHAttr) (verbs.AH, error)
}

// Init makes d ready for a driver to be started on it.
func (d *Device) Init(name string, base *nic.Base, hooks Hooks) {
	d.name, d.base, d.hooks = name, base, hooks
}

// Start gives d its driver, which is running already.
func (d *Device) Start(drv drive.Driver) {
	d.drv = drv
	drv.Lock(drive.CallWait)
	defer drv.Unlock()
	d.async = drv.NewCond(drive.WaitReason("asynchronous event of " + d.name))
	d.base.Observer = d.observe
}

// Name is what the device is listed as.
func (d *Device) Name() string { return d.name }

// Driver is the device's driver.
func (d *Device) Driver() drive.Driver { return d.drv }

// Closed reports whether the device was closed. The lock is held.
func (d *Device) Closed() bool { return d.closed }

// Waiting is how many calls wait in the device. The lock is held.
func (d *Device) BlockedCalls() int { return len(d.waiting) }

// observe hears of the NIC's events as they happen. They stay in the NIC until
// somebody takes them, so that those of an object that is closed go with it.
func (d *Device) observe(e nic.Event) {
	if d.hooks.OnEvent != nil {
		d.hooks.OnEvent(e)
	}
	d.async.Notify()
}

// Fire delivers the completion events that the NIC has for armed queues.
func (d *Device) DeliverCompletionEvents() {
	for {
		cq, ok := d.base.NextCompletionEvent()
		if !ok {
			return
		}
		cq.Owner.(*CQ).fire()
	}
}

// Enter begins a verb; Leave ends it and lets the NIC act on it.
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

// Leave ends a verb.
func (d *Device) Leave() {
	if !d.closed {
		d.drv.Pump()
	}
	d.drv.Unlock()
}

// Control runs a verb of the device's own.
func (d *Device) Control(op string, f func() error) error {
	if err := d.Enter(op, drive.CallControl); err != nil {
		return err
	}
	defer d.Leave()
	return f()
}

// Wait waits at g, with the lock held, until ready says so.
func (d *Device) Wait(op string, g drive.Cond, timeout time.Duration, ready func() bool) error {
	until := mono.Never
	if timeout >= 0 {
		until = d.drv.Now().Add(timeout)
	}
	d.waiting = append(d.waiting, g)
	defer func() {
		i := slices.Index(d.waiting, g)
		d.waiting = slices.Delete(d.waiting, i, i+1)
	}()
	for !ready() {
		if d.closed {
			return d.opError(op, verbs.ErrClosed)
		}
		left := verbs.Forever
		if until != mono.Never {
			if left = until.Sub(d.drv.Now()); left <= 0 {
				return d.opError(op, verbs.ErrTimeout)
			}
		}
		g.Wait(left)
	}
	return nil
}

// WaitAsync returns the next asynchronous event.
func (d *Device) WaitAsync(timeout time.Duration) (verbs.AsyncEvent, error) {
	const op = "get_async_event"
	if err := d.Enter(op, drive.CallWait); err != nil {
		return verbs.AsyncEvent{}, err
	}
	defer d.Leave()
	var e nic.Event
	err := d.Wait(op, d.async, timeout, func() (ok bool) {
		e, ok = d.base.NextEvent()
		return ok
	})
	if err != nil {
		return verbs.AsyncEvent{}, err
	}
	return d.asyncEvent(&e), nil
}

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

// Shut closes the device: calls that wait return ErrClosed, and the driver stops.
// last runs before that, with the lock held. It reports false if the device was
// closed already.
func (d *Device) Shutdown(last func()) bool {
	d.drv.Lock(drive.CallControl)
	if d.closed {
		d.drv.Unlock()
		return false
	}
	last()
	d.closed = true
	for _, g := range d.waiting {
		g.Notify()
	}
	d.drv.Unlock()
	d.drv.Close()
	if d.watch != nil {
		d.watch.Close() // it has been told nothing since
	}
	return true
}

// Attr is what the limits of the device say of it.
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

// Live refuses a verb that asks for what never changes, once the device is closed.
func (d *Device) CheckOpen(op string) error {
	if err := d.Enter(op, drive.CallWait); err != nil {
		return err
	}
	d.drv.Unlock()
	return nil
}

// OnlyPort refuses a port other than the first, and all of them on a closed device.
func (d *Device) CheckPort(op string, port uint8) error {
	if err := d.CheckOpen(op); err != nil {
		return err
	}
	if port != 1 {
		return d.opError(op, fmt.Errorf("%w: port %d, there is only port 1", verbs.ErrInvalid, port))
	}
	return nil
}

// InTable refuses an index that is not in a table of so many entries.
func (d *Device) CheckIndex(op string, index, size int) error {
	if index < 0 || index >= size {
		return d.opError(op, fmt.Errorf("%w: entry %d of a table of %d", verbs.ErrNotFound, index, size))
	}
	return nil
}

func (d *Device) opError(op string, err error) error {
	return &verbs.OpError{Op: op, Obj: d.name, Err: err}
}
