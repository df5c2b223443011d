// Package softiwarp is a verbs provider that speaks iWARP in user space: RDMAP
// and DDP over MPA over TCP, on simulated byte streams or on the kernel's
// sockets. It joins the pure engine (package engine, with mpa below it) to a
// driver of streams, and gives it the shape of package verbs. What the protocol
// demands is decided in those parts, not here.
//
// A connection is a TCP connection, and only the connection manager makes one:
// there is no way to join two queue pairs by hand. It refuses to be a general
// server of TCP: what does not begin with an MPA Request is counted and closed.
//
// A Device may be used from several goroutines; in a simulated world, from the
// world's programs.
package softiwarp

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/fabrictest/fabrictest/emu/defects/iwarpwire"
	"github.com/fabrictest/fabrictest/emu/internal/device"
	"github.com/fabrictest/fabrictest/emu/internal/drive"
	"github.com/fabrictest/fabrictest/emu/internal/simdrive"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/link/tcplink"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/emu/softiwarp/engine"
	"github.com/fabrictest/fabrictest/emu/softiwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// Defects make a device misbehave on purpose; see engine.Defects.
type Defects = engine.Defects

// Config describes a device. Addrs is required, the rest has defaults.
type Config struct {
	// Name is what the device is listed as; "softiwarp0" by default.
	Name string
	// Addrs become the GID table, in this order. The device listens on these and
	// dials from the first that is of the peer's family.
	Addrs []netip.Addr
	// NIC configures the engine, and in NIC.MPA what start-up frames ask for:
	// markers, CRCs, the revision, kinds of RTR, alignment to segments.
	// MPA.PeerToPeer is filled in: see ClientServer. KeySecret is if zero: by chance in
	// real time, by the seed in a simulated world.
	NIC engine.Config
	// Defects are defects of what the device writes and reads: see package defect. Those
	// of the device itself are in NIC.Defects.
	Defects iwarpwire.Defects
	// ClientServer asks for connections of the model that RFC 5044 has: whoever
	// accepts may not send before a message has come from the one who connected,
	// and what he posts waits until then. Otherwise connections are peer-to-peer
	// (RFC 6581), and either side may be first, unless the peer does not know that.
	ClientServer bool
	// Decorate, if not nil, is what OnTCP puts around its sockets: a capture, say.
	Decorate func(link.StreamWaiter) link.StreamWaiter
	// Costs is what verb calls take in a simulated world; zero for the defaults.
	Costs Costs
}

// Costs is the processor time of verb calls in a simulated world.
type Costs = simdrive.Costs

// startTime is the time at which real devices are opened. It is not zero, so
// that a time can be told from one never set.
const startTime mono.Time = 1

// InWorld opens a device in a simulated world. n is the port's StreamHost or a
// decorator of it.
func InWorld(w *sim.World, port *sim.Port, n link.StreamNet, cfg Config) (*Device, error) {
	if len(cfg.Addrs) == 0 {
		cfg.Addrs = port.Addrs()
	}
	if cfg.Costs == (Costs{}) {
		cfg.Costs = simdrive.DefaultCosts()
	}
	if cfg.NIC.KeySecret == ([16]byte{}) {
		cfg.NIC.KeySecret = simdrive.NewSecret(w, "softiwarp/keys/"+port.Name())
	}
	return open(cfg, n, port.MTU(), func(d *Device) drive.StreamDriver {
		return simdrive.NewStreams(w, d, n, port, cfg.Costs, (*portObserver)(d))
	})
}

// OnNet opens a device in real time on streams that are its own: nobody has
// dialed or listened there yet. The device closes the net.
func OnNet(n link.StreamWaiter, cfg Config) (*Device, error) {
	if cfg.NIC.KeySecret == ([16]byte{}) {
		cfg.NIC.KeySecret = drive.NewSecret()
	}
	mtu := defaultMTU
	if len(cfg.Addrs) > 0 {
		mtu = interfaceMTU(cfg.Addrs[0])
	}
	return open(cfg, n, mtu, func(d *Device) drive.StreamDriver {
		return drive.NewRealStreams(d, n, startTime)
	})
}

// OnTCP opens a device in real time on TCP sockets of the calling thread's
// network namespace. sock sets what it likes of them.
func OnTCP(sock tcplink.Config, cfg Config) (*Device, error) {
	tcp, err := tcplink.Open(sock)
	if err != nil {
		return nil, fmt.Errorf("softiwarp: %w", err)
	}
	var n link.StreamWaiter = tcp
	if cfg.Decorate != nil {
		n = cfg.Decorate(n)
	}
	d, err := OnNet(n, cfg)
	if err != nil {
		n.Close()
		return nil, err
	}
	d.tcp = tcp
	d.WatchPort(cfg.Addrs, (*portObserver)(d))
	return d, nil
}

// open builds a device and starts its driver. mtu is that of the interface.
func open(cfg Config, n link.StreamNet, mtu int, start func(*Device) drive.StreamDriver) (*Device, error) {
	if cfg.Name == "" {
		cfg.Name = "softiwarp0"
	}
	if len(cfg.Addrs) == 0 {
		return nil, fmt.Errorf("softiwarp %s: %w", cfg.Name, errNoAddress)
	}
	if cfg.NIC.GUID == 0 {
		cfg.NIC.GUID = guidOf(cfg.Addrs[0])
	}
	cfg.NIC.MPA.PeerToPeer = !cfg.ClientServer && cfg.NIC.MPA.MaxRevision != wire.RevisionRFC5044
	nic, err := engine.New(cfg.NIC)
	if err != nil {
		return nil, fmt.Errorf("softiwarp %s: %w", cfg.Name, err)
	}
	cfg.Addrs = slices.Clone(cfg.Addrs)
	for i, a := range cfg.Addrs {
		cfg.Addrs[i] = a.Unmap()
	}
	d := &Device{cfg: cfg, nic: nic, net: n, mtu: verbs.MTUFor(mtu), addrs: device.NewPortAddrs(cfg.Addrs)}
	if cfg.Defects != (iwarpwire.Defects{}) {
		d.wireDefects = iwarpwire.New(cfg.Defects, cfg.NIC.MPA.NoCRC)
	}
	d.cm.init(d)
	d.Init(cfg.Name, &nic.Base, d.hooks())
	d.streams = start(d)
	d.Start(d.streams)
	return d, nil
}

var errNoAddress = errors.New("a device needs an address: name one in Config.Addrs")

// guidOf makes a GUID of an address, with the bit set that says it is made up.
func guidOf(a netip.Addr) uint64 {
	b := a.As16()
	guid := uint64(0x02) << 56
	for i, v := range b {
		guid ^= uint64(v) << (8 * (uint(15-i) % 7))
	}
	return guid
}
