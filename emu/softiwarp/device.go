package softiwarp

import (
	"math"
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/internal/device"
	"github.com/fabrictest/fabrictest/emu/internal/drive"
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/link/tcplink"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softiwarp/engine"
	"github.com/fabrictest/fabrictest/verbs"
)

// shared is device.Device under an unexported name, so that Device does not export the
// embedded field.
type shared = device.Device

// Device is an open soft-iWARP device: a verbs.Context.
type Device struct {
	shared
	cfg     Config
	nic     *engine.NIC
	net     link.StreamNet
	tcp     *tcplink.Net // the sockets below net; nil in a simulated world
	streams drive.StreamDriver
	cm      manager
	mtu     verbs.MTU
	down    bool // the link is down
	addrs   device.PortAddrs
}

var _ verbs.Context = (*Device)(nil)

// Device is also the drive.StreamEngine of its driver: the engine with the connection
// manager and the delivery of events.

// Tick implements drive.StreamEngine.
func (d *Device) Tick(now mono.Time) { d.nic.Tick(now) }

// Deadline implements drive.StreamEngine.
func (d *Device) Deadline() mono.Time { return d.nic.Deadline() }

// Settle implements drive.StreamEngine: it delivers events that inputs and calls have caused.
func (d *Device) Settle(mono.Time) { d.deliverEvents() }

// NextOutput implements drive.StreamEngine. When no connection has output left, it delivers events,
// such as completions of the written requests, because the driver may sleep next. A delivered state
// change may cause more output.
func (d *Device) NextOutput() (drive.StreamConn, bool) {
	for {
		if c, ok := d.nic.NextOutput(); ok {
			return c, true
		}
		if !d.deliverEvents() {
			return nil, false
		}
	}
}

// deliverEvents delivers state changes of connections and completion events to the program. It
// reports whether a connection has changed, which may then have something to write.
func (d *Device) deliverEvents() (connChanged bool) {
	connChanged = d.cm.deliverChanges()
	d.DeliverCompletionEvents()
	return connChanged
}

// portObserver is a Device as a link.PortObserver.
type portObserver Device

// LinkChanged implements link.PortObserver. It reports a change as an asynchronous event.
func (o *portObserver) LinkChanged(up bool) {
	wasUp := !o.down
	if up == wasUp {
		return
	}
	o.down = !up
	e := nic.Event{Type: verbs.EventPortActive, Port: 1}
	if o.down {
		e.Type = verbs.EventPortErr
	}
	o.nic.Report(e)
}

// AddrChanged implements link.PortObserver. It reports a change as a GID event; the connections
// of a removed address are left to TCP.
func (o *portObserver) AddrChanged(addr netip.Addr, present bool) {
	if o.addrs.SetPresent(addr, present) {
		o.nic.Report(device.GIDChangeEvent())
	}
}

// Info implements verbs.Context.
func (d *Device) Info() verbs.DeviceInfo {
	return verbs.DeviceInfo{Name: d.cfg.Name, Provider: "softiwarp", Transport: verbs.TransportIWARP, GUID: d.cfg.NIC.GUID}
}

// QueryDevice implements verbs.Context.
func (d *Device) QueryDevice() (verbs.DeviceAttr, error) {
	if err := d.CheckOpen("query_device"); err != nil {
		return verbs.DeviceAttr{}, err
	}
	caps := verbs.CapRC | verbs.CapSRQ | verbs.CapMWType1 | verbs.CapMWType2 | verbs.CapAtomics |
		verbs.CapSendInv | verbs.CapLocalInv | verbs.CapCM | verbs.CapZeroBased | verbs.CapResizeCQ
	a := d.Attr()
	a.FirmwareVersion, a.NodeGUID, a.Caps, a.MaxPKeys = "softiwarp", d.cfg.NIC.GUID, caps, 1
	a.MaxAH, a.MaxXRCD, a.MaxMcastGroups, a.MaxMcastQPs = 0, 0, 0, 0
	return a, nil
}

// port implements device.Hooks.Port. iWARP has no path MTU; ActiveMTU is the largest MTU of verbs
// that fits into a packet of the interface.
func (d *Device) port() verbs.PortAttr {
	a := verbs.PortAttr{
		State: verbs.PortActive, MaxMTU: verbs.MTU4096, ActiveMTU: d.mtu,
		GIDs: len(d.cfg.Addrs), PKeys: 1, MaxMsg: math.MaxUint32,
	}
	if d.down {
		a.State = verbs.PortDown
	}
	return a
}

// Counters returns the counters of NIC, connection manager (cm_) and, on TCP, sockets (tcp_).
func (d *Device) Counters() []verbs.Counter {
	d.Driver().Lock(drive.CallWait) // a query takes no simulated time
	defer d.Driver().Unlock()
	all := append(d.nic.Counters(),
		verbs.Counter{Name: "cm_backlog_full", Value: d.cm.backlogFull},
		verbs.Counter{Name: "cm_fallbacks", Value: d.cm.fallbacks})
	if d.tcp == nil {
		return all
	}
	s := d.tcp.Stats()
	return append(all, []verbs.Counter{
		{Name: "tcp_dialed", Value: s.Dialed},
		{Name: "tcp_accepted", Value: s.Accepted},
		{Name: "tcp_turned_away", Value: s.Rejected},
		{Name: "tcp_reads", Value: s.ReadCalls},
		{Name: "tcp_reads_empty", Value: s.ReadEmptyCalls},
		{Name: "tcp_rcvd_octets", Value: s.ReadBytes},
		{Name: "tcp_writes", Value: s.WriteCalls},
		{Name: "tcp_writes_full", Value: s.WriteFull},
		{Name: "tcp_sent_octets", Value: s.WrittenBytes},
		{Name: "tcp_polls", Value: s.PollCalls},
		{Name: "tcp_sleeps", Value: s.Sleeps},
	}...)
}

// CM returns the connection manager.
func (d *Device) CM() (verbs.CM, error) { return &d.cm, nil }

// Close closes the device and its streams; a second call does nothing. Connections that were not
// disconnected are reset. Blocked calls return ErrClosed.
func (d *Device) Close() error {
	if !d.Shutdown(func() {}) { // nothing else to do before the driver stops
		return nil
	}
	return d.net.Close()
}
