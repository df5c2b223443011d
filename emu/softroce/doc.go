// Package softroce is a verbs provider that speaks RoCEv2 in user space, on a
// simulated link or on a UDP socket. It joins the pure parts (engine, the NIC;
// cm, its connection manager) to a driver, and gives them the shape of package
// verbs. What the protocol demands is decided in those parts, not here.
//
// A Device may be used from several goroutines; in a simulated world, from the
// world's programs.
package softroce

import (
	"cmp"
	"fmt"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/emu/defects/rocewire"
	"github.com/fabrictest/fabrictest/emu/internal/device"
	"github.com/fabrictest/fabrictest/emu/internal/drive"
	"github.com/fabrictest/fabrictest/emu/internal/simdrive"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/link/udplink"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/emu/softroce/cm"
	"github.com/fabrictest/fabrictest/emu/softroce/engine"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// Defects make a device misbehave on purpose; see engine.Defects.
type Defects = engine.Defects

// Config describes a device. Addrs is required, the rest has defaults.
type Config struct {
	// Name is what the device is listed as; "softroce0" by default.
	Name string
	// Addrs become the GID table, in this order.
	Addrs []netip.Addr
	// V1Addrs follow them as GIDs of RoCEv1, which are listed and carry nothing.
	V1Addrs []netip.Addr
	// NIC configures the engine. GIDs, Link and LinkMTU are filled in; KeySecret is if
	// zero: by chance in real time, by the seed in a simulated world.
	NIC engine.Config
	// CM configures the connection manager. CAGUID is filled in if zero.
	CM cm.Config
	// Defects are what is wrong with the device's packets.
	Defects rocewire.Defects
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

// wakeSlack is by how much a thread is late that sleeps until the next packet may
// leave: the kernel's timer slack, 50 µs, and about as long until it runs. At rates
// at which packets are closer than that a sender that could not catch up would send
// one for each sleep.
const wakeSlack = 100 * time.Microsecond

// InWorld opens a device in a simulated world. l is port or a decorator of it.
func InWorld(w *sim.World, port *sim.Port, l link.PacketLink, cfg Config) (*Device, error) {
	if len(cfg.Addrs) == 0 {
		cfg.Addrs = port.Addrs()
	}
	if cfg.Costs == (Costs{}) {
		cfg.Costs = simdrive.DefaultCosts()
	}
	if cfg.NIC.KeySecret == ([16]byte{}) {
		cfg.NIC.KeySecret = simdrive.NewSecret(w, "softroce/keys/"+port.Name())
	}
	return open(cfg, l, func(d *Device) drive.Driver {
		return simdrive.New(w, d, l, port, cfg.Costs, (*portObserver)(d))
	})
}

// OnLink opens a device in real time on a link that is already open. The
// device closes the link.
func OnLink(l link.Waiter, cfg Config) (*Device, error) {
	if cfg.NIC.KeySecret == ([16]byte{}) {
		cfg.NIC.KeySecret = drive.NewSecret()
	}
	cfg.NIC.Congestion.CatchUp = cmp.Or(cfg.NIC.Congestion.CatchUp, wakeSlack)
	return open(cfg, l, func(d *Device) drive.Driver {
		return drive.NewReal(d, l, startTime)
	})
}

// OnUDP opens a device in real time on UDP sockets of the calling thread's
// network namespace, bound to the RoCEv2 port of the first address. sock sets
// what it likes of the socket; Local and PatchIPID are filled in.
func OnUDP(sock udplink.Config, cfg Config) (*Device, error) {
	if len(cfg.Addrs) != 1 {
		return nil, fmt.Errorf("softroce: a UDP device has one address, not %d: open one device for each", len(cfg.Addrs))
	}
	sock.Local = netip.AddrPortFrom(cfg.Addrs[0], wire.Port)
	sock.PatchIPID = patchIPID
	sock.DropFragmentable = true
	sock.TClass |= link.ECT0       // which all but congestion news carry
	sock.SeparateSourcePort = true // in RoCEv2 nobody sends to a source port
	s, err := udplink.Open(sock)
	if err != nil {
		return nil, fmt.Errorf("softroce: %w", err)
	}
	var l link.Waiter = s
	if cfg.Decorate != nil {
		l = cfg.Decorate(s)
	}
	if cfg.NIC.WindowPackets == 0 {
		cfg.NIC.WindowPackets = windowPackets(s.Info())
	}
	d, err := OnLink(l, cfg)
	if err != nil {
		l.Close()
		return nil, err
	}
	d.WatchPort(cfg.Addrs, (*portObserver)(d))
	return d, nil
}

// windowFor is how many packets a requester may have under way: no more than a
// socket can queue that got as large a buffer as ours, for the peer's most likely
// did. What the kernel does not grant an ordinary user (net.core.rmem_max) would
// else be lost again and again. The kernel counts up to twice what a packet holds.
func windowPackets(i udplink.Info) int {
	packet := min(i.MTU, wire.MaxPacketLen)
	return min(max(i.RecvBufBytes/(2*packet), leastWindow), mostWindow)
}

// A window keeps the way filled while an acknowledgement comes back.
const leastWindow, mostWindow = 16, 256

// fixID makes a packet that was sealed for IPv4 identification 0 right for id,
// and the other way round. The CRC is linear, so that the difference depends on
// the length alone.
func patchIPID(payload []byte, id uint16) {
	delta := wire.IDDelta(id, len(payload))
	tail := payload[len(payload)-wire.ICRCLen:]
	for i := range tail {
		tail[i] ^= byte(delta >> (8 * i))
	}
}

// open builds a device and starts its driver.
func open(cfg Config, l link.PacketLink, start func(*Device) drive.Driver) (*Device, error) {
	if cfg.Name == "" {
		cfg.Name = "softroce0"
	}
	cfg.NIC.GIDs = gidTable(&cfg)
	cfg.NIC.UCAwaitsAck = cfg.Defects.UCLikeRC
	cfg.NIC.Link = l.Features()
	cfg.NIC.LinkMTU = l.MTU()
	if cfg.NIC.GUID == 0 && len(cfg.Addrs) > 0 {
		cfg.NIC.GUID = guidFromAddr(cfg.Addrs[0])
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
		d.wireDefects = rocewire.New(cfg.Defects, defectiveNIC{nic}, cfg.NIC.ICRC == engine.ICRCChecked)
	}
	d.cm.init(d, cfg.CM)
	d.Init(cfg.Name, &nic.Base, d.hooks())
	d.Start(start(d))
	return d, nil
}

// gidTable lists the device's addresses.
func gidTable(cfg *Config) []verbs.GIDEntry {
	table := engine.RoCEv2GIDs(append(cfg.Addrs[:len(cfg.Addrs):len(cfg.Addrs)], cfg.V1Addrs...)...)
	for i := range cfg.V1Addrs {
		table[len(cfg.Addrs)+i].Type = verbs.GIDTypeRoCEv1
	}
	return table
}

// guidOf makes a GUID of an address, with the bit set that says it is made up.
func guidFromAddr(a netip.Addr) uint64 {
	b := a.As16()
	guid := uint64(0x02) << 56
	for i, v := range b {
		guid ^= uint64(v) << (8 * (uint(15-i) % 7))
	}
	return guid
}
