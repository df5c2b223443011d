package sim

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// NetConfig configures a Net.
type NetConfig struct {
	// Name is unique in the world; errors and random number generators use it. The default is "net"
	// and a number.
	Name string
	// Cable connects two ports back to back, without a switch and its queue.
	// Both ends lose their link together.
	Cable bool
	// Dissector lets exact events match by flow and sequence number; may be nil.
	Dissector impair.Dissector
	// Stream configures byte streams.
	Stream StreamConfig
}

// Net is a network: ports on one store-and-forward switch, the two ends of one
// cable, or several switches joined by trunks (AddSwitch). A packet crosses the
// sender's uplink, waits in the egress queue of each switch, and crosses the
// trunks and the receiver's downlink. A packet to the sender itself takes the
// same path. The sender's switch copies multicast and broadcast packets.
type Net struct {
	w   *World
	cfg NetConfig
	portTable
	topology
	partitioned bool // Partition is in effect

	listeners map[netip.AddrPort]*Listener
	dialed    int // streams

	packets   pool[packet]
	segments  pool[segment]
	receivers []*Port // scratch buffer of forward

	tap       Tap
	dropTap   DropTap
	streamTap StreamTap
	callTap   CallTap
}

// portTable holds the ports of a Net.
type portTable struct {
	ports  []*Port
	byAddr map[netip.Addr]*Port
	// addrChanges counts the addresses that ports have lost.
	addrChanges int
	byName      map[string]*Port
	groups      map[netip.Addr][]*Port // members in the order they joined
}

// topology is the switches of a Net and the trunks between them.
type topology struct {
	switches    []*Switch // empty if the Net has only the default switch
	trunks      []*Trunk
	trunkNames  map[string]*Trunk
	routesValid bool // nextHops and broadcast domains are computed
}

// Tap observes packets as ports send them and as they are delivered. The
// datagram is valid during the call. Its Tag is the same for all copies of a
// packet; the packets of a world are numbered from 1.
type Tap func(now mono.Time, p *Port, dir Direction, d *link.Datagram)

// Direction is the direction of a packet as seen by its port.
type Direction uint8

// The two directions.
const (
	Out Direction = iota
	In
)

// NewNet returns a network without ports. Its name must be unique in the world; the default is
// "net" and a number.
func NewNet(w *World, cfg NetConfig) (*Net, error) {
	if cfg.Name == "" {
		cfg.Name = fmt.Sprintf("net%d", len(w.netNames))
	}
	cfg.Stream = cfg.Stream.withDefaults()
	if err := cfg.Stream.validate(); err != nil {
		return nil, fmt.Errorf("net %s: %w", cfg.Name, err)
	}
	if w.netNames[cfg.Name] {
		return nil, fmt.Errorf("net %s: the name is taken", cfg.Name)
	}
	w.netNames[cfg.Name] = true
	return &Net{
		w: w, cfg: cfg, listeners: map[netip.AddrPort]*Listener{},
		portTable: portTable{byAddr: map[netip.Addr]*Port{}, byName: map[string]*Port{}, groups: map[netip.Addr][]*Port{}},
		topology:  topology{trunkNames: map[string]*Trunk{}},
	}, nil
}

// NewPair returns two ports connected by a cable.
func NewPair(w *World, cfg NetConfig, a, b PortConfig) (*Port, *Port, error) {
	cfg.Cable = true
	n, err := NewNet(w, cfg)
	if err != nil {
		return nil, nil, err
	}
	pa, errA := n.Attach(a)
	pb, errB := n.Attach(b)
	if err := errors.Join(errA, errB); err != nil {
		return nil, nil, err
	}
	return pa, pb, nil
}

// Attach adds a port, with the costs, link and impairments of cfg. Packets that have crossed its
// uplink are forwarded to other ports; packets that have crossed its downlink have arrived.
func (n *Net) Attach(cfg PortConfig) (*Port, error) {
	if cfg.Name == "" {
		cfg.Name = fmt.Sprintf("port%d", len(n.ports))
	}
	cfg.Link = cfg.Link.withDefaults()
	cfg.Addrs = slices.Clone(cfg.Addrs)
	for i, a := range cfg.Addrs {
		cfg.Addrs[i] = canonical(a)
	}
	p := &Port{net: n, cfg: cfg, sw: cfg.Switch}
	if err := n.check(p); err != nil {
		return nil, fmt.Errorf("net %s: port %s: %w", n.cfg.Name, cfg.Name, err)
	}
	p.nic = newPortNIC(&p.cfg.NIC, n.cfg.Dissector)
	p.uplink = linkDir{
		net: n, name: cfg.Name, place: cfg.Name, direction: "up", port: p, cfg: &p.cfg.Link, carrier: &p.carrier,
		wire: newWire(&cfg.Link), forward: (*Net).forward, lastHop: n.cfg.Cable,
	}
	p.downlink = p.uplink
	p.downlink.direction, p.downlink.forward, p.downlink.lastHop = "down", (*Net).processReceive, true
	p.downlink.ecnRand = n.w.Rand(n.randName(cfg.Name, "red"))
	p.writableTimer.init(n.w, &p.writable, 0)
	if err := errors.Join(p.uplink.addImpairment(cfg.Up), p.downlink.addImpairment(cfg.Down)); err != nil {
		return nil, fmt.Errorf("net %s: %w", n.cfg.Name, err)
	}
	n.ports = append(n.ports, p)
	n.byName[cfg.Name] = p
	for _, a := range p.cfg.Addrs {
		n.byAddr[a] = p
	}
	return p, nil
}

// check reports why a port cannot be attached: its name, switch, addresses or link.
func (n *Net) check(p *Port) error {
	if n.byName[p.cfg.Name] != nil || n.trunkNames[p.cfg.Name] != nil {
		return errors.New("the name is taken")
	}
	if err := n.checkSwitch(p.sw); err != nil {
		return err
	}
	if n.cfg.Cable && len(n.ports) == 2 {
		return errors.New("a cable has two ends, and both are taken")
	}
	if len(p.cfg.Addrs) == 0 {
		return errors.New("no address: PortConfig.Addrs is empty")
	}
	for i, a := range p.cfg.Addrs {
		switch {
		case !a.IsValid() || isGroup(a) || a.IsUnspecified():
			return fmt.Errorf("address %v is not a unicast address", a)
		case n.byAddr[a] != nil:
			return fmt.Errorf("address %v is taken by port %s", a, n.byAddr[a].cfg.Name)
		case slices.Contains(p.cfg.Addrs[:i], a):
			return fmt.Errorf("address %v is given twice", a)
		}
	}
	return errors.Join(p.cfg.Link.validate(), p.cfg.NIC.validate())
}

// canonical returns a without IPv4 mapping and zone.
func canonical(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// randName returns the name of a random number generator of a port or trunk (see World.Rand).
func (n *Net) randName(place, use string) string { return n.cfg.Name + "/" + place + "/" + use }

// Ports returns the ports in the order they were attached.
func (n *Net) Ports() []*Port { return n.ports }

// Port returns the port of that name, nil if there is none.
func (n *Net) Port(name string) *Port { return n.byName[name] }

// SetTap replaces the Tap; nil removes it.
func (n *Net) SetTap(t Tap) { n.tap = t }

// DropTap observes dropped packets, with the place and the cause. A packet that
// a reorder event holds back is shown too, and may still be delivered.
type DropTap func(now mono.Time, place, cause string, d *link.Datagram)

// SetDropTap replaces the DropTap; nil removes it.
func (n *Net) SetDropTap(t DropTap) { n.dropTap = t }
