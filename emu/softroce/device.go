package softroce

import (
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/drive"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/engine"
	"github.com/fabrictest/fabrictest/verbs"
)

// Device is an opened soft-RoCE NIC: a verbs.Context.
type Device struct {
	cfg     Config
	nic     *engine.NIC
	link    link.PacketLink
	drv     drive.Driver
	cm      manager
	async   drive.Gate   // for asynchronous events, which wait in the NIC
	waiting []drive.Gate // where calls wait, one entry for each
	closed  bool
}

var _ verbs.Context = (*Device)(nil)

// The Device itself is what the driver drives: the engine, with the connection
// manager and the delivery of events around it.

// Input takes a datagram.
func (d *Device) Input(now mono.Time, dg *link.Datagram) { d.nic.Input(now, dg) }

// Tick handles deadlines that have passed.
func (d *Device) Tick(now mono.Time) {
	d.nic.Tick(now)
	d.cm.tick(now)
}

// Deadline is the next deadline of NIC or connection manager.
func (d *Device) Deadline() mono.Time { return min(d.nic.Deadline(), d.cm.agent.NextTimer()) }

// Settle carries MADs between NIC and connection manager, and hands on what the
// NIC has to report.
func (d *Device) Settle(now mono.Time) {
	d.cm.exchange(now)
	for {
		cq, ok := d.nic.NextCompletionEvent()
		if !ok {
			return
		}
		cq.Owner.(*completionQueue).fire()
	}
}

// Release lets packets go that the NIC keeps back.
func (d *Device) Release() bool { return d.nic.ReleaseAcks() }

// StrictDeadline is the next deadline but for those that may be missed a little.
func (d *Device) StrictDeadline() mono.Time {
	return min(d.nic.StrictDeadline(), d.cm.agent.NextTimer())
}

// Output fills ds with what is to be sent.
func (d *Device) Output(now mono.Time, ds []link.Datagram) int { return d.nic.Output(now, ds) }

// observe hears of the NIC's events as they happen. They stay in the NIC until
// somebody takes them, so that those of an object that is closed go with it.
func (d *Device) observe(e engine.Event) {
	d.cm.observe(d.drv.Now(), e)
	d.async.Notify()
}

func asyncEvent(e engine.Event) verbs.AsyncEvent {
	out := verbs.AsyncEvent{Type: e.Type, Port: e.Port}
	if e.QP != nil {
		out.QP = e.QP.Owner.(*pair).handles[0]
	}
	if e.CQ != nil {
		out.CQ = e.CQ.Owner.(*completionQueue)
	}
	if e.SRQ != nil {
		out.SRQ = e.SRQ.Owner.(*sharedQueue)
	}
	return out
}

// enter begins a verb; leave ends it and lets the NIC act on it.
func (d *Device) enter(op string, c drive.Call) error {
	d.drv.Lock(c)
	if d.closed {
		d.drv.Unlock()
		return &verbs.OpError{Op: op, Obj: d.cfg.Name, Err: verbs.ErrClosed}
	}
	if c == drive.CallControl {
		d.payAcks()
	}
	return nil
}

// payAcks sends the ACKs that are held back: a QP that is taken down has
// acknowledged what the program has answered.
func (d *Device) payAcks() {
	if d.nic.ReleaseAcks() {
		d.drv.Pump()
	}
}

func (d *Device) leave() {
	if !d.closed {
		d.drv.Pump()
	}
	d.drv.Unlock()
}

// control runs a verb of the device's own.
func (d *Device) control(op string, f func() error) error {
	if err := d.enter(op, drive.CallControl); err != nil {
		return err
	}
	defer d.leave()
	return f()
}

// wait waits at g until ready says so.
func (d *Device) wait(op string, g drive.Gate, timeout time.Duration, ready func() bool) error {
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
			return &verbs.OpError{Op: op, Obj: d.cfg.Name, Err: verbs.ErrClosed}
		}
		left := verbs.Forever
		if until != mono.Never {
			if left = until.Sub(d.drv.Now()); left <= 0 {
				return &verbs.OpError{Op: op, Obj: d.cfg.Name, Err: verbs.ErrTimeout}
			}
		}
		g.Wait(left)
	}
	return nil
}

// Info names the device.
func (d *Device) Info() verbs.DeviceInfo {
	return verbs.DeviceInfo{Name: d.cfg.Name, Provider: "softroce", Transport: verbs.TransportIB, GUID: d.cfg.NIC.GUID}
}

// QueryDevice returns what the device can do.
func (d *Device) QueryDevice() (verbs.DeviceAttr, error) {
	l := d.nic.Config().Limits
	caps := verbs.CapRC | verbs.CapUC | verbs.CapUD | verbs.CapXRC | verbs.CapSRQ | verbs.CapMWType1 | verbs.CapMWType2 |
		verbs.CapAtomics | verbs.CapMulticast | verbs.CapSendInv | verbs.CapLocalInv | verbs.CapFlush | verbs.CapAtomicWrite |
		verbs.CapCM | verbs.CapCongestion | verbs.CapAutoMigration | verbs.CapCredits | verbs.CapZeroBased | verbs.CapResizeCQ
	if d.nic.Config().Quirks.NoCongestion {
		caps &^= verbs.CapCongestion
	}
	return verbs.DeviceAttr{
		FirmwareVersion: "softroce", NodeGUID: d.cfg.NIC.GUID, Caps: caps,
		MaxQP: l.QPs, MaxQPWR: l.QPWR, MaxSGE: l.SGE, MaxSGERead: l.SGE, MaxInline: l.Inline,
		MaxCQ: l.CQs, MaxCQE: l.CQE, MaxMR: l.MRs, MaxMRSize: 1 << 47, MaxMW: l.MRs, MaxPD: l.PDs, MaxAH: l.AHs,
		MaxSRQ: l.SRQs, MaxSRQWR: l.SRQWR, MaxSRQSGE: l.SGE, MaxXRCD: l.XRCDs,
		MaxQPRdAtomic: l.RdAtomic, MaxQPInitAtomic: l.RdAtomic,
		MaxMcastGroups: l.McastGroups, MaxMcastQPs: l.McastQPs, MaxPKeys: len(d.nic.Config().PKeys), Ports: 1,
	}, nil
}

// QueryPort describes the port.
func (d *Device) QueryPort(port uint8) (a verbs.PortAttr, err error) {
	if err := d.onlyPort("query_port", port); err != nil {
		return a, err
	}
	err = d.control("query_port", func() error {
		a = d.nic.Port()
		return nil
	})
	return a, err
}

func (d *Device) onlyPort(op string, port uint8) error {
	if port != 1 {
		return &verbs.OpError{Op: op, Obj: d.cfg.Name, Err: fmt.Errorf("%w: port %d, there is only port 1", verbs.ErrInvalid, port)}
	}
	return nil
}

// outside refuses an index that is not in a table.
func (d *Device) outside(op string, index, size int) error {
	if index < 0 || index >= size {
		return &verbs.OpError{Op: op, Obj: d.cfg.Name, Err: fmt.Errorf("%w: entry %d of a table of %d", verbs.ErrNotFound, index, size)}
	}
	return nil
}

// QueryGID returns an entry of the GID table.
func (d *Device) QueryGID(port uint8, index int) (e verbs.GIDEntry, err error) {
	if err := d.onlyPort("query_gid", port); err != nil {
		return e, err
	}
	err = d.control("query_gid", func() error {
		table := d.nic.Config().GIDs
		if err := d.outside("query_gid", index, len(table)); err != nil {
			return err
		}
		e = table[index]
		return nil
	})
	return e, err
}

// QueryPKey returns an entry of the partition table.
func (d *Device) QueryPKey(port uint8, index int) (uint16, error) {
	if err := d.onlyPort("query_pkey", port); err != nil {
		return 0, err
	}
	table := d.nic.Config().PKeys
	if err := d.outside("query_pkey", index, len(table)); err != nil {
		return 0, err
	}
	return table[index], nil
}

// WaitAsync returns the next asynchronous event.
func (d *Device) WaitAsync(timeout time.Duration) (verbs.AsyncEvent, error) {
	const op = "get_async_event"
	if err := d.enter(op, drive.CallWait); err != nil {
		return verbs.AsyncEvent{}, err
	}
	defer d.leave()
	var e engine.Event
	err := d.wait(op, d.async, timeout, func() (ok bool) {
		e, ok = d.nic.NextEvent()
		return ok
	})
	if err != nil {
		return verbs.AsyncEvent{}, err
	}
	return asyncEvent(e), nil
}

// Counters returns what NIC and connection manager have counted, the latter
// under names that begin with cm_.
func (d *Device) Counters() []verbs.Counter {
	d.drv.Lock(drive.CallWait)
	defer d.drv.Unlock()
	all := d.nic.Count.List()
	counted := d.cm.agent.Counters()
	for _, c := range counted.List() {
		all = append(all, verbs.Counter{Name: "cm_" + c.Name, Value: c.Value})
	}
	return all
}

// CM returns the connection manager.
func (d *Device) CM() (verbs.CM, error) { return &d.cm, nil }

// Close closes the device and its link. Calls that wait return ErrClosed.
func (d *Device) Close() error {
	d.drv.Lock(drive.CallControl)
	if d.closed {
		d.drv.Unlock()
		return nil
	}
	d.payAcks()
	d.closed = true
	for _, g := range d.waiting {
		g.Notify()
	}
	d.drv.Unlock()
	d.drv.Close()
	return d.link.Close()
}
