// Package dgiwarp is a verbs provider that speaks datagram-iWARP in user space:
// RDMAP and DDP over UDP, without connections, on a simulated link or on a UDP
// socket. It joins the pure engine (package engine, with rd below it) to a driver,
// and gives it the shape of package verbs. What the protocol demands is decided in
// those parts, not here; docs/spec/datagram-iwarp.md is the protocol.
//
// All queue pairs are of type UD. Whether one is reliable (RD) is Config.QP for
// the whole device, or CreateQPWith for one of them. Peers are addressed by IP
// address, UDP port and queue pair number, which programs tell each other by
// other means: it refuses to be a connection manager, for the protocol has none.
//
// A Device may be used from several goroutines; in a simulated world, from the
// world's programs.
package dgiwarp

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/defects/dgwire"
	"github.com/fabrictest/fabrictest/emu/dgiwarp/engine"
	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/internal/device"
	"github.com/fabrictest/fabrictest/emu/internal/drive"
	"github.com/fabrictest/fabrictest/emu/internal/simdrive"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/link/udplink"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/verbs"
)

// DefaultPort is the UDP port of a device that was not told another.
const DefaultPort = wire.Port

// Config describes a device. Addrs is required, the rest has defaults.
type Config struct {
	// Name is what the device is listed as; "dgiwarp0" by default.
	Name string
	// Addrs become the GID table, in this order.
	Addrs []netip.Addr
	// QP is what queue pairs are that CreateQP makes.
	QP QPOptions
	// NIC configures the engine. GIDs is filled in; Secret and LinkMTU are if zero.
	NIC engine.Config
	// Defects make the packets of the device wrong on purpose; what else can be wrong
	// is NIC.Defects.
	Defects dgwire.Defects
	// Decorate, if not nil, is what OnUDP puts around its socket: a capture, say.
	Decorate func(link.Waiter) link.Waiter
	// Costs is what verb calls take in a simulated world; zero for the defaults.
	Costs Costs
}

// Costs is the processor time of verb calls in a simulated world.
type Costs = simdrive.Costs

// startTime is the time at which real devices are opened. It is not zero, so
// that a time can be told from one never set.
const startTime mono.Time = 1

// largestMTU bounds packets where the link does not: a loopback interface takes
// packets of 64 KB, of which hardly any fit into a socket's buffer.
const largestMTU = 9216

// noErrorLimit is more error messages than anybody draws.
const noErrorLimit = 1 << 20

// InWorld opens a device in a simulated world. l is port or a decorator of it.
func InWorld(w *sim.World, port *sim.Port, l link.PacketLink, cfg Config) (*Device, error) {
	if len(cfg.Addrs) == 0 {
		cfg.Addrs = port.Addrs()
	}
	if cfg.Costs == (Costs{}) {
		cfg.Costs = simdrive.DefaultCosts()
	}
	if cfg.NIC.Secret == ([16]byte{}) {
		cfg.NIC.Secret = simdrive.NewSecret(w, "dgiwarp/secret/"+port.Name())
	}
	return open(cfg, l, func(d *Device) drive.Driver {
		return simdrive.New(w, d, l, port, cfg.Costs, (*portObserver)(d))
	})
}

// OnLink opens a device in real time on a link that is already open. The
// device closes the link.
func OnLink(l link.Waiter, cfg Config) (*Device, error) {
	if cfg.NIC.Secret == ([16]byte{}) {
		cfg.NIC.Secret = drive.NewSecret()
	}
	return open(cfg, l, func(d *Device) drive.Driver {
		return drive.NewReal(d, l, startTime)
	})
}

// OnUDP opens a device in real time on a UDP socket of the calling thread's
// network namespace, bound to the only address and the port of NIC. sock sets
// what it likes of the socket; Local is filled in, and what the protocol does not
// care for is given up for speed.
func OnUDP(sock udplink.Config, cfg Config) (*Device, error) {
	if len(cfg.Addrs) != 1 {
		return nil, fmt.Errorf("dgiwarp: a UDP device has one address, not %d: open one device for each", len(cfg.Addrs))
	}
	addr := cfg.Addrs[0].Unmap()
	sock.Local = netip.AddrPortFrom(addr, cmp.Or(cfg.NIC.Port, cfg.NIC.Defects.Port()))
	sock.PatchIPID = func([]byte, uint16) {} // the CRC does not cover the identification
	sock.Broadcast = addr.Is4()              // who names that address means it
	sock.SeparateSourcePort = false          // peers answer to where packets come from
	sock.HopLimit = cmp.Or(sock.HopLimit, engine.DefaultHopLimit)
	if cfg.QP.Reliable && !cfg.Defects.MarksIgnored {
		sock.TClass |= link.ECT0 // which packets with data carry
	}
	s, err := udplink.Open(sock)
	if err != nil {
		return nil, fmt.Errorf("dgiwarp: %w", err)
	}
	var l link.Waiter = s
	if cfg.Decorate != nil {
		l = cfg.Decorate(s)
	}
	d, err := OnLink(l, cfg)
	if err != nil {
		l.Close()
		return nil, err
	}
	d.udp = s
	d.WatchPort(cfg.Addrs, (*portObserver)(d))
	return d, nil
}

// open builds a device and starts its driver.
func open(cfg Config, l link.PacketLink, start func(*Device) drive.Driver) (*Device, error) {
	cfg.Name = cmp.Or(cfg.Name, "dgiwarp0")
	if len(cfg.Addrs) == 0 {
		return nil, fmt.Errorf("dgiwarp %s: %w", cfg.Name, errNoAddress)
	}
	cfg.NIC.GIDs = nil
	for i, a := range cfg.Addrs {
		cfg.NIC.GIDs = append(cfg.NIC.GIDs, verbs.GIDEntry{GID: verbs.GIDFrom(a), Index: i, Type: verbs.GIDTypeIB})
	}
	if cfg.NIC.LinkMTU == 0 {
		cfg.NIC.LinkMTU = min(l.MTU(), largestMTU)
	}
	if cfg.NIC.GUID == 0 {
		cfg.NIC.GUID = guidFromAddr(cfg.Addrs[0])
	}
	if cfg.Defects.ErrorsFlood {
		cfg.NIC.ErrorRate, cfg.NIC.ErrorBurst = noErrorLimit, noErrorLimit
	}
	nic, err := engine.New(cfg.NIC)
	if err != nil {
		return nil, fmt.Errorf("dgiwarp %s: %w", cfg.Name, err)
	}
	d := &Device{cfg: cfg, nic: nic, link: l, addrs: device.NewPortAddrs(cfg.Addrs)}
	if cfg.Defects != (dgwire.Defects{}) {
		d.wireDefects = dgwire.New(cfg.Defects, defectiveNIC{nic})
	}
	d.Init(cfg.Name, &nic.Base, d.hooks())
	d.Start(start(d))
	return d, nil
}

var errNoAddress = errors.New("a device needs an address: name one in Config.Addrs")

// guidOf makes a GUID of an address, with the bit set that says it is made up.
func guidFromAddr(a netip.Addr) uint64 {
	b := a.As16()
	guid := uint64(0x02) << 56
	for i, v := range b {
		guid ^= uint64(v) << (8 * (uint(15-i) % 7))
	}
	return guid
}
