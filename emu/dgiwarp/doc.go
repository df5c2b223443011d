// Package dgiwarp is a verbs provider that implements datagram-iWARP in user space: RDMAP
// and DDP over UDP, without connections, on a simulated link or on a UDP socket. It wires a
// driver to the protocol packages engine and rd; see docs/spec/datagram-iwarp.md.
//
// All queue pairs are of type UD. Config.QP makes them reliable (RD) for the whole device,
// CreateQPWith for one queue pair. The protocol has no connection manager: applications
// exchange the IP address, UDP port and queue pair number of a peer by other means.
//
// A Device is safe for concurrent use; in a simulated world, by the programs of the world.
package dgiwarp

import (
	"cmp"
	"fmt"
	"net/netip"
	"os"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/engine"
	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/internal/device"
	"github.com/fabrictest/fabrictest/emu/internal/drive"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/link/shmlink"
	"github.com/fabrictest/fabrictest/emu/link/udplink"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/verbs"
)

// DefaultPort is the default UDP port of a device.
const DefaultPort = wire.Port

// Config describes a device. Addrs is required, the rest has defaults.
type Config struct {
	// Name is the device name; "dgiwarp0" by default.
	Name string
	// Addrs are the addresses of the GID table, in this order.
	Addrs []netip.Addr
	// QP are the options of queue pairs that CreateQP creates.
	QP QPOptions
	// NIC configures the engine. GIDs is set here, and Secret and LinkMTU if they are zero.
	NIC engine.Config
	// Decorate, if not nil, wraps the link of OnUDP and OnCable, for instance with a capture.
	Decorate func(link.Waiter) link.Waiter
	// Costs is the processor time of verb calls in a simulated world; the defaults if zero.
	Costs verbs.Costs
}

// startTime is the time at which devices in real time are opened; zero would mean unset.
const startTime mono.Time = 1

// largestMTU bounds the packet size: a loopback interface has an MTU of 64 KB, of which few
// packets fit into a socket buffer.
const largestMTU = 9216

// InWorld opens a device in a simulated world. l is the port itself or a link that wraps it, for
// instance with a capture.
func InWorld(w *sim.World, port *sim.Port, l link.PacketLink, cfg Config) (*Device, error) {
	if len(cfg.Addrs) == 0 {
		cfg.Addrs = port.Addrs()
	}
	if cfg.Costs == (verbs.Costs{}) {
		cfg.Costs = sim.DefaultCosts()
	}
	if cfg.NIC.Secret == ([16]byte{}) {
		cfg.NIC.Secret = sim.NewSecret(w, "dgiwarp/secret/"+port.Name())
	}
	return open(cfg, l, func(d *Device) drive.Driver {
		return sim.NewDriver(d, l, sim.DriverConfig{Port: port, Costs: cfg.Costs, Observer: (*portObserver)(d)})
	})
}

// OnLink opens a device in real time on an open link, which the device closes.
func OnLink(l link.Waiter, cfg Config) (*Device, error) {
	if cfg.NIC.Secret == ([16]byte{}) {
		cfg.NIC.Secret = drive.NewSecret()
	}
	return open(cfg, l, func(d *Device) drive.Driver {
		return drive.NewReal(d, l, startTime)
	})
}

// OnUDP opens a device in real time on a UDP socket in the calling thread's network namespace,
// bound to the only address of cfg.Addrs and to cfg.NIC.Port. sock configures the socket; OnUDP
// overwrites the fields that the protocol prescribes.
func OnUDP(sock udplink.Config, cfg Config) (*Device, error) {
	if len(cfg.Addrs) != 1 {
		return nil, fmt.Errorf("dgiwarp: a UDP device has one address, not %d: open one device for each", len(cfg.Addrs))
	}
	addr := cfg.Addrs[0].Unmap()
	sock.Local = netip.AddrPortFrom(addr, cmp.Or(cfg.NIC.Port, wire.Port))
	sock.PatchIPID = func([]byte, uint16) {} // nothing to patch: the CRC does not cover the IP identification
	sock.Broadcast = addr.Is4()              // an application may send to 255.255.255.255
	sock.SeparateSourcePort = false          // peers answer to the source port
	sock.PacketRing = udplink.OffloadOff     // other hosts may drop datagrams without checksum
	sock.HopLimit = cmp.Or(sock.HopLimit, engine.DefaultHopLimit)
	if cfg.QP.Reliable {
		sock.TClass |= link.ECT0 // packets with data are ECN-capable
	}
	s, err := udplink.Open(sock)
	if err != nil {
		return nil, fmt.Errorf("dgiwarp: %w", err)
	}
	d, err := onDecorated(s, cfg)
	if err != nil {
		return nil, err
	}
	d.udp = s
	d.WatchPort(cfg.Addrs, (*portObserver)(d))
	return d, nil
}

// onDecorated opens a device on l, or on the link that cfg.Decorate makes of it. It closes the link if
// that fails.
func onDecorated(l link.Waiter, cfg Config) (*Device, error) {
	if cfg.Decorate != nil {
		l = cfg.Decorate(l)
	}
	d, err := OnLink(l, cfg)
	if err != nil {
		l.Close()
	}
	return d, err
}

// OnCable opens a device in real time on the port of a cable in shared memory (package shmlink) that
// has the only address of cfg.Addrs, with the UDP port cfg.NIC.Port.
func OnCable(cable *os.File, cfg Config) (*Device, error) {
	if len(cfg.Addrs) != 1 {
		return nil, fmt.Errorf("dgiwarp: a device on a cable has one address, not %d: open one device for each", len(cfg.Addrs))
	}
	s, err := shmlink.Open(cable, netip.AddrPortFrom(cfg.Addrs[0], cmp.Or(cfg.NIC.Port, wire.Port)))
	if err != nil {
		return nil, fmt.Errorf("dgiwarp: %w", err)
	}
	d, err := onDecorated(s, cfg)
	if err != nil {
		return nil, err
	}
	d.cable = s
	return d, nil
}

// open creates a device on a link, with defaults for fields that cfg does not set, and starts the
// driver that newDriver returns.
func open(cfg Config, l link.PacketLink, newDriver func(*Device) drive.Driver) (*Device, error) {
	cfg.Name = cmp.Or(cfg.Name, "dgiwarp0")
	if len(cfg.Addrs) == 0 {
		return nil, fmt.Errorf("dgiwarp %s: %w", cfg.Name, device.ErrNoAddress)
	}
	addrs := device.NewPortAddrs(cfg.Addrs)
	cfg.NIC.GIDs = addrs.GIDs()
	if cfg.NIC.LinkMTU == 0 {
		cfg.NIC.LinkMTU = min(l.MTU(), largestMTU)
	}
	if cfg.NIC.GUID == 0 {
		cfg.NIC.GUID = device.GUIDFromAddr(cfg.Addrs[0])
	}
	nic, err := engine.New(cfg.NIC)
	if err != nil {
		return nil, fmt.Errorf("dgiwarp %s: %w", cfg.Name, err)
	}
	d := &Device{cfg: cfg, nic: nic, link: l, addrs: addrs}
	d.Init(cfg.Name, &nic.Base, device.Hooks{
		Protocol: "datagram-iWARP", PKeys: device.DefaultPKeys, Port: d.port, GIDs: nic.GIDs,
		QPHandle: func(qp any) verbs.QP { return qp.(*engine.QP).Owner.(*queuePair) },
		CreateAH: d.createAH,
		// RD peers may wait for receives: PostRecv then sends them an acknowledgement.
		PumpAfterRecv: nic.PeersAwaitReceives,
	})
	d.Start(newDriver(d))
	return d, nil
}
