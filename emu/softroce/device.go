package softroce

import (
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/defects/rocewire"
	"github.com/fabrictest/fabrictest/emu/internal/device"
	"github.com/fabrictest/fabrictest/emu/internal/drive"
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/engine"
	"github.com/fabrictest/fabrictest/verbs"
)

// shared is what the devices of all providers have in common. By this name its
// place in a Device is ours alone.
type shared = device.Device

// Device is an opened soft-RoCE NIC: a verbs.Context.
type Device struct {
	shared
	cfg         Config
	nic         *engine.NIC
	wireDefects *rocewire.Edge // nil if the device has no defects at its wire
	link        link.PacketLink
	cm          manager

	addrs device.PortAddrs
}

var _ verbs.Context = (*Device)(nil)

// The Device itself is what the driver drives: the engine, with the connection
// manager and the delivery of events around it.

// Input takes a datagram.
func (d *Device) Input(now mono.Time, dg *link.Datagram) {
	if d.wireDefects != nil {
		d.wireDefects.Input(now, dg)
		return
	}
	d.nic.Input(now, dg)
}

// Tick handles deadlines that have passed.
func (d *Device) Tick(now mono.Time) {
	d.nic.Tick(now)
	d.cm.tick(now)
}

// Deadline is the next deadline of NIC or connection manager.
func (d *Device) Deadline() mono.Time {
	return min(d.nic.Deadline(), d.cm.agent.NextTimer(), d.defectDeadline())
}

// edgeDeadline is that of the defects at the wire.
func (d *Device) defectDeadline() mono.Time {
	if d.wireDefects == nil {
		return mono.Never
	}
	return d.wireDefects.Deadline()
}

// Settle carries MADs between NIC and connection manager, and hands on what the
// NIC has to report.
func (d *Device) Settle(now mono.Time) {
	d.cm.exchangeMADs(now)
	d.DeliverCompletionEvents()
}

// Release lets packets go that the NIC keeps back.
func (d *Device) Release() bool { return d.nic.ReleaseAcks() }

// StrictDeadline is the next deadline but for those that may be missed a little.
func (d *Device) StrictDeadline() mono.Time {
	return min(d.nic.StrictDeadline(), d.cm.agent.NextTimer(), d.defectDeadline())
}

// Output fills ds with what is to be sent.
func (d *Device) Output(now mono.Time, ds []link.Datagram) int {
	if d.wireDefects != nil {
		return d.wireDefects.Output(now, ds)
	}
	return d.nic.Output(now, ds)
}

// hooks are what the parts that all providers share have to know of this one.
func (d *Device) hooks() device.Hooks {
	return device.Hooks{
		QPHandle:      func(qp any) verbs.QP { return qp.(*engine.QP).Owner.(*qpState).handles[0] },
		OnEvent:       func(e nic.Event) { d.cm.onNICEvent(d.Driver().Now(), e) },
		BeforeControl: d.sendDelayedAcks,
		CreateAH:      d.createAH,
	}
}

// payAcks sends the ACKs that are held back: a QP that is taken down has
// acknowledged what the program has answered.
func (d *Device) sendDelayedAcks() {
	if d.nic.ReleaseAcks() {
		d.Driver().Pump()
	}
}

// observer is a Device as it hears of its port.
type portObserver Device

// LinkChanged implements link.PortObserver.
func (o *portObserver) LinkChanged(up bool) { o.nic.SetPort(up) }

// AddrChanged implements link.PortObserver.
func (o *portObserver) AddrChanged(addr netip.Addr, present bool) {
	if o.addrs.SetPresent(addr, present) {
		o.nic.SetGIDs(o.addrs.FilterGIDs(gidTable(&o.cfg)))
	}
}

// Info names the device.
func (d *Device) Info() verbs.DeviceInfo {
	return verbs.DeviceInfo{Name: d.cfg.Name, Provider: "softroce", Transport: verbs.TransportIB, GUID: d.cfg.NIC.GUID}
}

// QueryDevice returns what the device can do.
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

// QueryPort describes the port.
func (d *Device) QueryPort(port uint8) (a verbs.PortAttr, err error) {
	if err := d.CheckPort("query_port", port); err != nil {
		return a, err
	}
	err = d.Control("query_port", func() error {
		a = d.nic.Port()
		return nil
	})
	return a, err
}

// QueryGID returns an entry of the GID table. That of an address which was taken
// away is empty.
func (d *Device) QueryGID(port uint8, index int) (e verbs.GIDEntry, err error) {
	if err := d.CheckPort("query_gid", port); err != nil {
		return e, err
	}
	err = d.Control("query_gid", func() error {
		table := d.nic.Config().GIDs
		if err := d.CheckIndex("query_gid", index, len(table)); err != nil {
			return err
		}
		e = table[index]
		return nil
	})
	return e, err
}

// QueryPKey returns an entry of the partition table.
func (d *Device) QueryPKey(port uint8, index int) (uint16, error) {
	if err := d.CheckPort("query_pkey", port); err != nil {
		return 0, err
	}
	table := d.nic.Config().PKeys
	if err := d.CheckIndex("query_pkey", index, len(table)); err != nil {
		return 0, err
	}
	return table[index], nil
}

// Counters returns what NIC and connection manager have counted, the latter
// under names that begin with cm_.
func (d *Device) Counters() []verbs.Counter {
	d.Driver().Lock(drive.CallWait)
	defer d.Driver().Unlock()
	counted := d.cm.agent.Counters()
	return append(d.nic.Counters(), counted.List()...)
}

// CM returns the connection manager.
func (d *Device) CM() (verbs.CM, error) { return &d.cm, nil }

// Close closes the device and its link. Calls that wait return ErrClosed.
func (d *Device) Close() error {
	if !d.Shutdown(d.sendDelayedAcks) {
		return nil
	}
	return d.link.Close()
}
