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
	costs     drive.ByteCosts // nil in real time
	asyncCond drive.Cond      // notified of asynchronous events
	blocked   []drive.Cond    // one entry for each blocked call
	closed    bool
	watch     *portWatch // nil if the port is not watched
}

// Hooks are what a provider adds to Device. OnEvent and those below it may be nil.
type Hooks struct {
	// Protocol is the name of the protocol in errors about features that it does not have.
	Protocol string
	// XRC is true if the protocol has XRC.
	XRC bool
	// PKeys is the P_Key table. Protocols without partitions have DefaultPKeys.
	PKeys []uint16
	// Port returns the attributes of the port. The device calls it with the lock held.
	Port func() verbs.PortAttr
	// GIDs returns the GID table. The device calls it with the lock held.
	GIDs func() []verbs.GIDEntry
	// QPHandle returns the handle of the engine's queue pair qp.
	QPHandle func(qp any) verbs.QP
	// OnEvent is called for every asynchronous event, with the lock held.
	OnEvent func(nic.Event)
	// BeforeControl is called, with the lock held, before every verb that queries, creates or
	// changes an object (drive.CallControl).
	BeforeControl func()
	// CreateAH creates an address handle.
	CreateAH func(*PD, verbs.AHAttr) (verbs.AH, error)
	// PumpAfterRecv reports whether peers wait for the receives that were just posted, so that the
	// engine has packets to send. The lock is held.
	PumpAfterRecv func() bool
}

// DefaultPKeys is the P_Key table of a protocol without partitions: it has the default partition
// only, for programs that expect one.
var DefaultPKeys = []uint16{0xffff}

// Init prepares d before its driver is started.
func (d *Device) Init(name string, base *nic.Base, hooks Hooks) {
	d.name, d.base, d.hooks = name, base, hooks
}

// Start attaches the driver, which is running already.
func (d *Device) Start(drv drive.Driver) {
	d.drv = drv
	d.costs, _ = drv.(drive.ByteCosts)
	drv.Lock(drive.CallWait)
	defer drv.Unlock()
	d.asyncCond = drv.NewCond(drive.WaitReason("asynchronous event of " + d.name))
	d.base.Observer = d.onEvent
}

// Name is the device's name in device lists.
func (d *Device) Name() string { return d.name }

// Driver is the device's driver.
func (d *Device) Driver() drive.Driver { return d.drv }

// Closed reports whether the device was closed. The caller holds the lock.
func (d *Device) Closed() bool { return d.closed }

// BlockedCalls is the number of calls that wait in the device. The caller holds the lock.
func (d *Device) BlockedCalls() int { return len(d.blocked) }

// onEvent is called when the NIC has queued an asynchronous event. It runs the provider's hook and
// wakes WaitAsync. The NIC keeps events until they are read: closing an object can remove them.
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

// Enter locks the driver for a verb, and runs the hook BeforeControl if c is CallControl. It fails
// if the device is closed; otherwise Leave must follow.
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

// spendBytes lets the time of an operation on n bytes pass, in a simulated world.
func (d *Device) spendBytes(what drive.ByteCost, n int) {
	if d.costs != nil {
		d.costs.SpendBytes(what, n)
	}
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

// Wait waits on cond until ready returns true, the timeout has passed or the device is closed. A
// negative timeout never passes. The caller holds the lock, which cond releases meanwhile.
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

// WaitAsync implements verbs.Context: it waits for the next asynchronous event.
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

// Shutdown closes the device: it calls beforeClose with the lock held, makes blocked calls return
// ErrClosed, and stops the driver. If the device was closed already, it only returns false.
func (d *Device) Shutdown(beforeClose func()) bool {
	d.drv.Lock(drive.CallControl)
	if d.closed {
		d.drv.Unlock()
		return false
	}
	beforeClose()
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
	const addressSpace = 1 << 47 // of a process on x86-64: the size of a region has no other limit
	l := &d.base.Limits
	return verbs.DeviceAttr{
		MaxQP: l.QPs, MaxQPWR: l.QPWR, MaxSGE: l.SGE, MaxSGERead: l.SGE, MaxInline: l.Inline,
		MaxCQ: l.CQs, MaxCQE: l.CQE, MaxMR: l.MRs, MaxMRSize: addressSpace, MaxMW: l.MRs, MaxPD: l.PDs, MaxAH: l.AHs,
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

// QueryPort implements verbs.Context.
func (d *Device) QueryPort(port uint8) (a verbs.PortAttr, err error) {
	const op = "query_port"
	if err := d.checkPort(op, port); err != nil {
		return a, err
	}
	err = d.Control(op, func() error {
		a = d.hooks.Port()
		return nil
	})
	return a, err
}

// QueryGID implements verbs.Context. The entry of a removed address is empty.
func (d *Device) QueryGID(port uint8, index int) (e verbs.GIDEntry, err error) {
	const op = "query_gid"
	if err := d.checkPort(op, port); err != nil {
		return e, err
	}
	err = d.Control(op, func() (err error) {
		e, err = entry(d, op, d.hooks.GIDs(), index)
		return err
	})
	return e, err
}

// QueryPKey implements verbs.Context.
func (d *Device) QueryPKey(port uint8, index int) (uint16, error) {
	const op = "query_pkey"
	if err := d.checkPort(op, port); err != nil {
		return 0, err
	}
	return entry(d, op, d.hooks.PKeys, index) // needs no lock: the table does not change
}

// OpenQP fails. A provider with XRC has its own.
func (d *Device) OpenQP(verbs.XRCD, verbs.QPN) (verbs.QP, error) {
	return nil, d.Unsupported("open_qp", "XRC")
}

// Unsupported is the error of a verb that needs a feature which the protocol does not have.
func (d *Device) Unsupported(op, feature string) error {
	return d.opError(op, fmt.Errorf("%w: %s has no %s", verbs.ErrNotSupported, d.hooks.Protocol, feature))
}

// checkPort returns an error for other ports than 1, or if the device is closed.
func (d *Device) checkPort(op string, port uint8) error {
	if err := d.CheckOpen(op); err != nil {
		return err
	}
	if port != 1 {
		return d.opError(op, fmt.Errorf("%w: port %d, there is only port 1", verbs.ErrInvalid, port))
	}
	return nil
}

// entry returns an entry of a table of the port, or ErrNotFound.
func entry[T any](d *Device, op string, table []T, index int) (e T, err error) {
	if index < 0 || index >= len(table) {
		return e, d.opError(op, fmt.Errorf("%w: entry %d of a table of %d", verbs.ErrNotFound, index, len(table)))
	}
	return table[index], nil
}

func (d *Device) opError(op string, err error) error {
	return &verbs.OpError{Op: op, Obj: d.name, Err: err}
}
