// Package softiwarp is a verbs provider that implements iWARP in user space: RDMAP and DDP
// over MPA over TCP, on simulated byte streams or on TCP sockets. It implements the
// interfaces of package verbs with a driver and the protocol packages engine and mpa, and
// contains no protocol itself.
//
// Queue pairs are connected by the connection manager only. Incoming TCP connections that
// do not begin with an MPA Request are counted and closed.
//
// A Device is safe for concurrent use; in a simulated world, by the programs of the world.
package softiwarp

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/fabrictest/fabrictest/emu/internal/device"
	"github.com/fabrictest/fabrictest/emu/internal/drive"
	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/link/tcplink"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/emu/softiwarp/engine"
	"github.com/fabrictest/fabrictest/verbs"
)

// Config describes a device. Addrs is required, the rest has defaults.
type Config struct {
	// Name is the device name; "softiwarp0" by default.
	Name string
	// Addrs are the addresses of the GID table, in this order. The device listens on them,
	// and dials from the first one of the peer's family.
	Addrs []netip.Addr
	// NIC configures the engine, and NIC.MPA the start-up frames: markers, CRCs, revision,
	// RTR types, alignment to segments. MPA.PeerToPeer is set from ClientServer. KeySecret
	// is drawn at random if zero, in a simulated world from the seed.
	NIC engine.Config
	// ClientServer selects the connection model of RFC 5044: the passive side sends nothing
	// before it has received a message, and its work requests wait until then. Otherwise
	// connections are peer-to-peer (RFC 6581), if the peer supports that.
	ClientServer bool
	// Decorate, if not nil, wraps the sockets of OnTCP, for instance with a capture.
	Decorate func(link.StreamWaiter) link.StreamWaiter
	// Costs is the processor time of verb calls in a simulated world; the defaults if zero.
	Costs verbs.Costs
}

// startTime is the time at which devices in real time are opened. It is not 0, because a zero
// time means that a time is not set.
const startTime mono.Time = 1

// InWorld opens a device in a simulated world. n, which opens TCP streams on the port, is the
// StreamHost of the port or a wrapper of it.
func InWorld(w *sim.World, port *sim.Port, n link.StreamNet, cfg Config) (*Device, error) {
	if len(cfg.Addrs) == 0 {
		cfg.Addrs = port.Addrs()
	}
	if cfg.Costs == (verbs.Costs{}) {
		cfg.Costs = sim.DefaultCosts()
	}
	if cfg.NIC.KeySecret == ([16]byte{}) {
		cfg.NIC.KeySecret = sim.NewSecret(w, "softiwarp/keys/"+port.Name())
	}
	return open(cfg, n, port.MTU(), func(d *Device) drive.StreamDriver {
		return sim.NewStreamDriver(d, n, sim.DriverConfig{Port: port, Costs: cfg.Costs, Observer: (*portObserver)(d)})
	})
}

// OnNet opens a device in real time on n, which must have no streams or listeners yet. The device
// closes n. The MTU is that of the interface of the first address.
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

// OnTCP opens a device in real time on TCP sockets in the calling thread's network namespace, and
// watches the interface with its addresses. sock configures the sockets; cfg.Decorate may wrap them.
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

// open creates a device with defaults for fields that cfg does not set, and starts the driver that
// newDriver returns. mtu is the MTU of the interface.
func open(cfg Config, n link.StreamNet, mtu int, newDriver func(*Device) drive.StreamDriver) (*Device, error) {
	cfg.Name = cmp.Or(cfg.Name, "softiwarp0")
	if len(cfg.Addrs) == 0 {
		return nil, fmt.Errorf("softiwarp %s: %w", cfg.Name, device.ErrNoAddress)
	}
	if cfg.NIC.GUID == 0 {
		cfg.NIC.GUID = device.GUIDFromAddr(cfg.Addrs[0])
	}
	cfg.NIC.MPA.PeerToPeer = !cfg.ClientServer && cfg.NIC.MPA.MaxRevision != wire.RevisionRFC5044 // which has no peer-to-peer model
	nic, err := engine.New(cfg.NIC)
	if err != nil {
		return nil, fmt.Errorf("softiwarp %s: %w", cfg.Name, err)
	}
	cfg.Addrs = slices.Clone(cfg.Addrs)
	for i, a := range cfg.Addrs {
		cfg.Addrs[i] = a.Unmap()
	}
	d := &Device{cfg: cfg, nic: nic, net: n, mtu: verbs.MTUFor(mtu), addrs: device.NewPortAddrs(cfg.Addrs)}
	d.cm.device = d
	d.Init(cfg.Name, &nic.Base, device.Hooks{
		Protocol: "iWARP", PKeys: device.DefaultPKeys, Port: d.port, GIDs: d.addrs.GIDs,
		QPHandle: func(qp any) verbs.QP { return qp.(*engine.QP).Owner.(*queuePair) },
	})
	d.streams = newDriver(d)
	d.Start(d.streams)
	return d, nil
}
