package dgiwarp

import (
	"math"
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/engine"
	"github.com/fabrictest/fabrictest/emu/internal/device"
	"github.com/fabrictest/fabrictest/emu/internal/drive"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/link/shmlink"
	"github.com/fabrictest/fabrictest/emu/link/udplink"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/verbs"
)

// shared is an unexported name of device.Device, so that Device does not export the embedded field.
type shared = device.Device

// Device is an open datagram-iWARP device: a verbs.Context.
type Device struct {
	shared
	cfg  Config
	nic  *engine.NIC
	link link.PacketLink
	udp  *udplink.Link // the socket below link; nil without
	// cable is the cable in shared memory below link; nil without.
	cable *shmlink.Link

	addrs device.PortAddrs
}

var (
	_ verbs.Context        = (*Device)(nil)
	_ drive.DelayingEngine = (*Device)(nil)
)

// Device is also the drive.Engine of its driver: the engine with the delivery of events.

// Input implements drive.Engine: the engine processes a received datagram.
func (d *Device) Input(now mono.Time, dg *link.Datagram) { d.nic.Input(now, dg) }

// Tick implements drive.Engine: the engine handles timers that have expired.
func (d *Device) Tick(now mono.Time) { d.nic.Tick(now) }

// Deadline implements drive.Engine. It returns when the next timer expires.
func (d *Device) Deadline() mono.Time { return d.nic.Deadline() }

// StrictDeadline implements drive.DelayingEngine. It is Deadline without the timers that may be
// late, such as those of delayed acknowledgements.
func (d *Device) StrictDeadline() mono.Time { return d.nic.StrictDeadline() }

// Release implements drive.DelayingEngine. It releases no delayed acknowledgement before its time:
// the longer the acknowledgement waits, the more packets it acknowledges.
func (d *Device) Release() bool { return false }

// Settle implements drive.Engine: it delivers the events of completions since the last call.
func (d *Device) Settle(mono.Time) { d.DeliverCompletionEvents() }

// Output implements drive.Engine: it fills ds with datagrams to send and returns their number. UD
// requests complete when they are sent. Output delivers their completion events itself, because the
// driver calls Settle, which delivers all others, before Output, and may sleep after Output.
func (d *Device) Output(now mono.Time, ds []link.Datagram) int {
	n := d.nic.Output(now, ds)
	if d.nic.CompletionEvents() > 0 {
		d.DeliverCompletionEvents()
	}
	return n
}

// portObserver is a Device as a link.PortObserver.
type portObserver Device

func (o *portObserver) LinkChanged(up bool) { o.nic.SetPort(up) }

// AddrChanged implements link.PortObserver: it empties the GID entry of an address that was removed
// from the interface, or restores it.
func (o *portObserver) AddrChanged(addr netip.Addr, present bool) {
	if o.addrs.SetPresent(addr, present) {
		o.nic.SetGIDs(o.addrs.GIDs())
	}
}

// Info implements verbs.Context.
func (d *Device) Info() verbs.DeviceInfo {
	return verbs.DeviceInfo{Name: d.cfg.Name, Provider: "dgiwarp", Transport: verbs.TransportIWARP, GUID: d.cfg.NIC.GUID}
}

// QueryDevice implements verbs.Context. The attributes depend on the service of the queue
// pairs: RD has Reads, atomics, Send with Invalidate and congestion control, UD has multicast.
func (d *Device) QueryDevice() (verbs.DeviceAttr, error) {
	if err := d.CheckOpen("query_device"); err != nil {
		return verbs.DeviceAttr{}, err
	}
	caps := verbs.CapUD | verbs.CapSRQ | verbs.CapMWType1 | verbs.CapMWType2 | verbs.CapLocalInv | verbs.CapZeroBased | verbs.CapResizeCQ
	a := d.Attr()
	if d.cfg.QP.Reliable {
		caps |= verbs.CapRD | verbs.CapAtomics | verbs.CapSendInv | verbs.CapCongestion
		a.MaxMcastGroups, a.MaxMcastQPs = 0, 0
		reads := uint8(min(d.nic.Config().Reads, math.MaxUint8))
		a.MaxQPRdAtomic, a.MaxQPInitAtomic = reads, reads
	} else {
		caps |= verbs.CapMulticast
		a.MaxQPRdAtomic, a.MaxQPInitAtomic = 0, 0
	}
	a.FirmwareVersion, a.NodeGUID, a.Caps, a.MaxPKeys, a.MaxXRCD = "dgiwarp", d.cfg.NIC.GUID, caps, 1, 0
	return a, nil
}

// port implements device.Hooks.Port. MaxMsg is the longest Send, ActiveMTU the largest MTU of verbs
// that fits into one packet.
func (d *Device) port() verbs.PortAttr {
	a := verbs.PortAttr{
		State: verbs.PortActive, MaxMTU: verbs.MTU4096, ActiveMTU: verbs.MTUFor(d.nic.MaxUDPayload()),
		GIDs: len(d.cfg.Addrs), PKeys: 1, MaxMsg: engine.MaxUDSend,
		QKeyViolations: uint32(d.nic.Count.DropKey),
	}
	if d.cfg.QP.Reliable {
		a.MaxMsg = math.MaxUint32
	}
	if d.nic.PortDown {
		a.State = verbs.PortDown
	}
	return a
}

// CM fails: the protocol has no connections.
func (d *Device) CM() (verbs.CM, error) {
	return nil, d.Unsupported("cm", "connection manager: address peers by IP address, UDP port and QP number (AddressOf), which applications exchange by other means")
}

// Counters implements verbs.Context. It returns the counters of the NIC and, if there is one, of the
// UDP socket, with the prefix "udp_", or of the cable in shared memory, with the prefix "cable_".
func (d *Device) Counters() []verbs.Counter {
	d.Driver().Lock(drive.CallWait) // a query takes no simulated time
	defer d.Driver().Unlock()
	all := d.nic.Counters()
	if d.cable != nil {
		return append(all, d.cable.Counters()...)
	}
	if d.udp == nil {
		return all
	}
	s := d.udp.Stats()
	return append(all, []verbs.Counter{
		{Name: "udp_sends", Value: s.SendCalls},
		{Name: "udp_sends_full", Value: s.SendFull},
		{Name: "udp_sends_joined", Value: s.GSOPackets},
		{Name: "udp_reads", Value: s.RecvCalls},
		{Name: "udp_reads_empty", Value: s.RecvEmptyCalls},
		{Name: "udp_reads_joined", Value: s.GROPackets},
		{Name: "udp_lost", Value: s.Lost()},
		{Name: "udp_dropped", Value: s.KernelDrops},
	}...)
}

// Close closes the device and its link. Blocked calls return ErrClosed. Closing again does nothing.
func (d *Device) Close() error {
	if !d.Shutdown(func() {}) { // nothing else to do before the driver stops
		return nil
	}
	return d.link.Close()
}
