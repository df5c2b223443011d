package softroce

import (
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/defects/rocewire"
	"github.com/fabrictest/fabrictest/emu/internal/device"
	"github.com/fabrictest/fabrictest/emu/internal/drive"
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/link/shmlink"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/engine"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// shared is device.Device, unexported so that Device does not export the embedded field.
type shared = device.Device

// Device is an open soft-RoCE device: a verbs.Context.
type Device struct {
	shared
	cfg         Config
	nic         *engine.NIC
	wireDefects *rocewire.Filter // nil if the device's packets have no defects
	link        link.PacketLink
	cable       *shmlink.Link // below link; nil unless the device was opened with OnCable
	cm          manager

	addrs device.PortAddrs
}

var _ verbs.Context = (*Device)(nil)

// Device is also the drive.Engine of its driver: the engine with the connection manager and
// the delivery of events.

// Input implements drive.Engine. If the device imitates defects, the filter wireDefects gets the
// packet before the NIC.
func (d *Device) Input(now mono.Time, dg *link.Datagram) {
	if d.wireDefects != nil {
		d.wireDefects.Input(now, dg)
		return
	}
	d.nic.Input(now, dg)
}

// Tick implements drive.Engine: it handles the timers of NIC and connection manager that are due.
func (d *Device) Tick(now mono.Time) {
	d.nic.Tick(now)
	if d.cm.agent.NextTimer() <= now {
		d.cm.activateAgent().HandleTimer(now)
	}
}

// BuildInPlace implements drive.InPlaceEngine. The filter wireDefects keeps packets, so that it needs
// memory of its own.
func (d *Device) BuildInPlace() (maxLen int) {
	if d.wireDefects != nil {
		return 0
	}
	d.nic.BuildInPlace()
	return wire.MaxPacketLen
}

// Deadline implements drive.Engine: it returns when Tick must be called next.
func (d *Device) Deadline() mono.Time {
	return min(d.nic.Deadline(), d.cm.agent.NextTimer(), d.defectDeadline())
}

// defectDeadline returns when wireDefects must send a packet that it delays, or mono.Never.
func (d *Device) defectDeadline() mono.Time {
	if d.wireDefects == nil {
		return mono.Never
	}
	return d.wireDefects.Deadline()
}

// Settle implements drive.Engine. It exchanges MADs between NIC and connection manager, and
// delivers completion events.
func (d *Device) Settle(now mono.Time) {
	d.cm.exchangeMADs(now)
	d.DeliverCompletionEvents()
}

// Release implements drive.DelayingEngine: it makes delayed ACKs ready to send, and reports whether
// there were any.
func (d *Device) Release() bool { return d.nic.ReleaseAcks() }

// StrictDeadline implements drive.DelayingEngine: it returns when Tick must be called next, like
// Deadline, but ignores the delayed ACKs if all of them may be sent a millisecond late.
func (d *Device) StrictDeadline() mono.Time {
	return min(d.nic.StrictDeadline(), d.cm.agent.NextTimer(), d.defectDeadline())
}

// Output implements drive.Engine. The filter wireDefects, if any, imitates defects of sent packets.
// Output also delivers the completion events of requests that complete when they are sent.
func (d *Device) Output(now mono.Time, ds []link.Datagram) (n int) {
	if d.wireDefects != nil {
		n = d.wireDefects.Output(now, ds)
	} else {
		n = d.nic.Output(now, ds)
	}
	d.DeliverCompletionEvents()
	return n
}

// hooks returns the functions of this provider that package device calls. QPHandle returns the
// handle of a queue pair for events; of an XRC target QP with several handles, the oldest.
// BeforeControl is called before each control verb, such as modify_qp.
func (d *Device) hooks() device.Hooks {
	return device.Hooks{
		Protocol: "RoCE", XRC: true, PKeys: d.nic.Config().PKeys,
		Port:          d.nic.Port,
		GIDs:          func() []verbs.GIDEntry { return d.nic.Config().GIDs },
		QPHandle:      func(qp any) verbs.QP { return qp.(*engine.QP).Owner.(*qpState).handles[0] },
		OnEvent:       func(e nic.Event) { d.cm.onNICEvent(d.Driver().Now(), e) },
		BeforeControl: d.sendDelayedAcks,
		CreateAH:      d.createAH,
	}
}

// sendDelayedAcks sends ACKs that the NIC delays. It is called before each control verb, because
// the verb may change or destroy a QP that has not yet acknowledged messages it has delivered.
func (d *Device) sendDelayedAcks() {
	if d.nic.ReleaseAcks() {
		d.Driver().Pump()
	}
}

// portObserver is a Device as a link.PortObserver.
type portObserver Device

// LinkChanged implements link.PortObserver: it changes the state of the device's port.
func (o *portObserver) LinkChanged(up bool) { o.nic.SetPort(up) }

// AddrChanged implements link.PortObserver: it empties the GID entry of an address that was removed
// from the interface, or restores it.
func (o *portObserver) AddrChanged(addr netip.Addr, present bool) {
	if changed := o.addrs.SetPresent(addr, present); changed {
		o.nic.SetGIDs(o.addrs.FilterGIDs(gidTable(&o.cfg)))
	}
}

// Info implements verbs.Context.
func (d *Device) Info() verbs.DeviceInfo {
	return verbs.DeviceInfo{Name: d.cfg.Name, Provider: "softroce", Transport: verbs.TransportIB, GUID: d.cfg.NIC.GUID}
}

// QueryDevice implements verbs.Context.
func (d *Device) QueryDevice() (verbs.DeviceAttr, error) {
	if err := d.CheckOpen("query_device"); err != nil {
		return verbs.DeviceAttr{}, err
	}
	caps := verbs.CapRC | verbs.CapUC | verbs.CapUD | verbs.CapXRC | verbs.CapSRQ | verbs.CapMWType1 | verbs.CapMWType2 |
		verbs.CapAtomics | verbs.CapMulticast | verbs.CapSendInv | verbs.CapLocalInv | verbs.CapFlush | verbs.CapAtomicWrite |
		verbs.CapCM | verbs.CapCongestion | verbs.CapAutoMigration | verbs.CapCredits | verbs.CapZeroBased | verbs.CapResizeCQ
	a := d.Attr()
	a.FirmwareVersion, a.NodeGUID, a.Caps, a.MaxPKeys = "softroce", d.cfg.NIC.GUID, caps, len(d.nic.Config().PKeys)
	return a, nil
}

// Counters returns the counters of the NIC, those of the connection manager, whose names begin
// with cm_, and those of a cable in shared memory, whose names begin with cable_.
func (d *Device) Counters() []verbs.Counter {
	d.Driver().Lock(drive.CallWait) // a query takes no simulated time
	defer d.Driver().Unlock()
	cmCounters := d.cm.agent.Counters()
	all := append(d.nic.Counters(), cmCounters.List()...)
	if d.cable != nil {
		all = append(all, d.cable.Counters()...)
	}
	return all
}

// CM returns the connection manager.
func (d *Device) CM() (verbs.CM, error) { return &d.cm, nil }

// Close closes the device and its link, and makes blocked calls return ErrClosed. A second Close
// does nothing.
func (d *Device) Close() error {
	if firstClose := d.Shutdown(d.sendDelayedAcks); !firstClose {
		return nil
	}
	return d.link.Close()
}
