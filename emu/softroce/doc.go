// Package softroce is a verbs provider that implements RoCEv2 in user space, on a simulated link or
// on a UDP socket. It implements the interfaces of package verbs with a driver and the protocol
// packages engine (the NIC) and cm (the connection manager), and contains no protocol itself.
//
// A Device is safe for concurrent use; in a simulated world, by the programs of the world.
package softroce

import (
	"cmp"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/emu/defects/rocewire"
	"github.com/fabrictest/fabrictest/emu/internal/device"
	"github.com/fabrictest/fabrictest/emu/internal/drive"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/link/shmlink"
	"github.com/fabrictest/fabrictest/emu/link/udplink"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/emu/softroce/cm"
	"github.com/fabrictest/fabrictest/emu/softroce/engine"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// Config describes a device. Addrs is required, the rest has defaults.
type Config struct {
	// Name is the device name; "softroce0" by default.
	Name string
	// Addrs are the addresses of the GID table, in this order.
	Addrs []netip.Addr
	// V1Addrs follow Addrs in the GID table, as GIDs of type RoCEv1, which cannot be used.
	V1Addrs []netip.Addr
	// NIC configures the engine. GIDs, Link and LinkMTU are set here. KeySecret is drawn at
	// random if zero, in a simulated world from the seed.
	NIC engine.Config
	// CM configures the connection manager. CAGUID is set here if zero.
	CM cm.Config
	// Defects are defects of the packets that the device sends and receives.
	Defects rocewire.Defects
	// Decorate, if not nil, wraps the link of OnUDP and OnCable, for instance with a capture.
	Decorate func(link.Waiter) link.Waiter
	// Costs is the processor time of verb calls in a simulated world; the defaults if zero.
	Costs verbs.Costs
}

// startTime is the time at which devices in real time are opened. Zero means no time.
const startTime mono.Time = 1

// wakeSlack is how late a thread wakes that sleeps until the next packet may be sent: the
// kernel's timer slack of 50 µs, and the scheduling latency. Without it a paced sender would
// send one packet per sleep.
const wakeSlack = 100 * time.Microsecond

// InWorld opens a device in a simulated world. l is port or a wrapper of it. Addresses, costs and
// the secret that makes memory keys unpredictable have defaults.
func InWorld(w *sim.World, port *sim.Port, l link.PacketLink, cfg Config) (*Device, error) {
	if len(cfg.Addrs) == 0 {
		cfg.Addrs = port.Addrs()
	}
	if cfg.Costs == (verbs.Costs{}) {
		cfg.Costs = sim.DefaultCosts()
	}
	if cfg.NIC.KeySecret == ([16]byte{}) {
		cfg.NIC.KeySecret = sim.NewSecret(w, "softroce/keys/"+port.Name())
	}
	return open(cfg, l, func(d *Device) drive.Driver {
		return sim.NewDriver(d, l, sim.DriverConfig{Port: port, Costs: cfg.Costs, Observer: (*portObserver)(d)})
	})
}

// OnLink opens a device that runs in real time on an open link, which the device closes. By default, a
// paced sender whose thread wakes late, by at most wakeSlack, sends at once all packets that are due.
func OnLink(l link.Waiter, cfg Config) (*Device, error) {
	if cfg.NIC.KeySecret == ([16]byte{}) {
		cfg.NIC.KeySecret = drive.NewSecret()
	}
	cfg.NIC.Congestion.CatchUp = cmp.Or(cfg.NIC.Congestion.CatchUp, wakeSlack)
	return open(cfg, l, func(d *Device) drive.Driver {
		return drive.NewReal(d, l, startTime)
	})
}

// OnUDP opens a device in real time on UDP sockets in the calling thread's network namespace, bound
// to the RoCEv2 port of its only address. sock configures the sockets, except for the fields that
// RoCEv2 prescribes, which OnUDP sets. cfg.Decorate, if it is not nil, wraps the link.
func OnUDP(sock udplink.Config, cfg Config) (*Device, error) {
	if len(cfg.Addrs) != 1 {
		return nil, fmt.Errorf("softroce: a UDP device has one address, not %d: open one device for each", len(cfg.Addrs))
	}
	sock.Local = netip.AddrPortFrom(cfg.Addrs[0], wire.Port)
	sock.PatchIPID = patchIPID     // the ICRC covers the IPv4 identification, which GSO changes
	sock.DropFragmentable = true   // RoCEv2 requires DF, and forbids fragments and IP options
	sock.TClass |= link.ECT0       // all packets but CNPs are ECN-capable
	sock.SeparateSourcePort = true // RoCEv2 peers do not answer to the source port
	s, err := udplink.Open(sock)
	if err != nil {
		return nil, fmt.Errorf("softroce: %w", err)
	}
	if cfg.NIC.WindowPackets == 0 {
		cfg.NIC.WindowPackets = windowPackets(s.Info())
	}
	d, err := onDecorated(s, cfg)
	if err != nil {
		return nil, err
	}
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
// has the only address of cfg.Addrs. cfg.Decorate, if it is not nil, wraps the link.
func OnCable(cable *os.File, cfg Config) (*Device, error) {
	if len(cfg.Addrs) != 1 {
		return nil, fmt.Errorf("softroce: a device on a cable has one address, not %d: open one device for each", len(cfg.Addrs))
	}
	s, err := shmlink.Open(cable, netip.AddrPortFrom(cfg.Addrs[0], wire.Port))
	if err != nil {
		return nil, fmt.Errorf("softroce: %w", err)
	}
	s.AllowInPlace()
	d, err := onDecorated(s, cfg)
	if err != nil {
		return nil, err
	}
	d.cable = s
	return d, nil
}

// windowPackets returns how many packets a requester may have in flight: as many as the peer's
// receive buffer holds, if it is as large as ours. Without privilege the buffer may be small
// (net.core.rmem_max), and a larger window would lose packets. The kernel accounts up to
// twice the size of a packet.
func windowPackets(i udplink.Info) int {
	packetLen := min(i.MTU, wire.MaxPacketLen)
	return min(max(i.RecvBufBytes/(2*packetLen), minWindow), maxWindow)
}

// Limits of windowPackets.
const minWindow, maxWindow = 16, 256

// patchIPID changes the ICRC of a packet, which covers the IPv4 identification, from identification
// 0 to id, or back. The CRC is linear, so the difference depends on id and the length only.
func patchIPID(payload []byte, id uint16) {
	delta := wire.IDDelta(id, len(payload))
	tail := payload[len(payload)-wire.ICRCLen:]
	for i := range tail {
		tail[i] ^= byte(delta >> (8 * i))
	}
}

// open fills in the defaults of cfg, creates a device on l, and starts it with newDriver's driver.
func open(cfg Config, l link.PacketLink, newDriver func(*Device) drive.Driver) (*Device, error) {
	if cfg.Name == "" {
		cfg.Name = "softroce0"
	}
	cfg.NIC.GIDs = gidTable(&cfg)
	cfg.NIC.Link = l.Features()
	cfg.NIC.LinkMTU = l.MTU()
	if cfg.NIC.GUID == 0 && len(cfg.Addrs) > 0 {
		cfg.NIC.GUID = device.GUIDFromAddr(cfg.Addrs[0])
	}
	nic, err := engine.New(cfg.NIC)
	if err != nil {
		return nil, fmt.Errorf("softroce %s: %w", cfg.Name, err)
	}
	if cfg.CM.CAGUID == 0 {
		cfg.CM.CAGUID = cfg.NIC.GUID
	}
	if len(cfg.CM.PKeys) == 0 {
		cfg.CM.PKeys = nic.Config().PKeys
	}
	cfg.CM.MaxMTU = uint8(nic.MTU())
	d := &Device{cfg: cfg, nic: nic, link: l, addrs: device.NewPortAddrs(cfg.Addrs)}
	if cfg.Defects != (rocewire.Defects{}) {
		hasICRC := cfg.NIC.ICRC == engine.ICRCChecked // else the link adds it after the filter
		d.wireDefects = rocewire.New(cfg.Defects, defectiveNIC{nic}, hasICRC)
	}
	d.cm.init(d, cfg.CM)
	d.Init(cfg.Name, &nic.Base, d.hooks())
	d.Start(newDriver(d))
	return d, nil
}

// gidTable returns the GID table of a configuration: an entry of type RoCEv2 for each of Addrs,
// then one of type RoCEv1 for each of V1Addrs.
func gidTable(cfg *Config) []verbs.GIDEntry {
	table := engine.RoCEv2GIDs(slices.Concat(cfg.Addrs, cfg.V1Addrs)...)
	for i := range cfg.V1Addrs {
		table[len(cfg.Addrs)+i].Type = verbs.GIDTypeRoCEv1
	}
	return table
}
