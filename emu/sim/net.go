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

// NetConfig describes a Net.
type NetConfig struct {
	// Name is the Net's own in its world: errors and random streams go by it.
	// Empty means "net" and a number.
	Name string
	// Cable joins two ports back to back: no switch, no queue in the middle, one
	// latency, and both lose their link together.
	Cable bool
	// Dissector lets exact events match by flow and sequence number; nil if none
	// needs to.
	Dissector impair.Dissector
	// Stream is how byte streams behave.
	Stream StreamConfig
}

// Net is a network: ports around one store-and-forward switch, or the two ends
// of one cable, or several switches with trunks between them (AddSwitch). A
// packet crosses the sender's cable, waits in the switch's queue towards the
// receiver, and crosses the receiver's cable; with more switches, it waits in
// each of them, and crosses the trunks between. A port may send to itself: the
// packet goes the whole way and comes back. Copies of multicasts, and of
// broadcasts to 255.255.255.255, are made at the sender's switch.
type Net struct {
	w      *World
	cfg    NetConfig
	ports  []*Port
	byAddr map[netip.Addr]*Port
	byName map[string]*Port
	groups map[netip.Addr][]*Port // members in the order they joined
	fanout []*Port                // those that one packet goes to

	switches   []*Switch // none where the one switch needs no name
	trunks     []*Trunk
	trunkNames map[string]*Trunk
	routed     bool // the ways between switches, and the broadcast domains, are known

	packets []*packet
	free    []uint32

	divided bool                  // by Partition
	blocked map[[2]*Port]struct{} // one-way, by Block

	listeners    map[netip.AddrPort]*Listener
	dialed       int
	segments     []*segment
	freeSegments []uint32

	tap       Tap
	dropTap   DropTap
	streamTap StreamTap
}

// Tap sees packets: as they are put on the wire by a port, and as they are
// delivered to one. The datagram is valid during the call; its Tag is the same for
// all copies of a packet, and counts the packets of the world from 1.
type Tap func(now mono.Time, p *Port, dir Direction, d *link.Datagram)

// Direction is that of a packet, as its port sees it.
type Direction uint8

// The two directions.
const (
	Out Direction = iota
	In
)

// NewNet returns a network without ports.
func NewNet(w *World, cfg NetConfig) (*Net, error) {
	if cfg.Name == "" {
		cfg.Name = fmt.Sprintf("net%d", len(w.nets))
	}
	cfg.Stream = cfg.Stream.withDefaults()
	if err := cfg.Stream.validate(); err != nil {
		return nil, fmt.Errorf("net %s: %w", cfg.Name, err)
	}
	if w.nets[cfg.Name] {
		return nil, fmt.Errorf("net %s: the name is taken", cfg.Name)
	}
	w.nets[cfg.Name] = true
	return &Net{
		w: w, cfg: cfg,
		byAddr:    make(map[netip.Addr]*Port),
		byName:    make(map[string]*Port),
		groups:    make(map[netip.Addr][]*Port),
		blocked:   make(map[[2]*Port]struct{}),
		listeners: make(map[netip.AddrPort]*Listener),

		trunkNames: make(map[string]*Trunk),
	}, nil
}

// NewPair returns two ports at the ends of one cable.
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

// Attach adds a port.
func (n *Net) Attach(cfg PortConfig) (*Port, error) {
	if cfg.Name == "" {
		cfg.Name = fmt.Sprintf("port%d", len(n.ports))
	}
	cfg.Link = cfg.Link.withDefaults()
	cfg.Addrs = slices.Clone(cfg.Addrs)
	for i, a := range cfg.Addrs {
		cfg.Addrs[i] = plain(a)
	}
	p := &Port{net: n, cfg: cfg, sw: cfg.Switch}
	if err := n.check(p); err != nil {
		return nil, fmt.Errorf("net %s: port %s: %w", n.cfg.Name, cfg.Name, err)
	}
	l := &cfg.Link
	p.up = wire{pacer: impair.Pacer{RateBps: l.RateBps}, latency: l.Latency, overhead: l.OverheadBytes}
	p.down = p.up
	p.writableTimer.init(n.w, (*becomesWritable)(p), 0)
	p.red = n.w.Rand(n.stream(cfg.Name, "red"))
	var errUp, errDown error
	p.impairUp, errUp = n.newImpairment(cfg.Name, "up", cfg.Up, (*forwarding)(n))
	p.impairDown, errDown = n.newImpairment(cfg.Name, "down", cfg.Down, (*delivery)(n))
	if err := errors.Join(errUp, errDown); err != nil {
		return nil, fmt.Errorf("net %s: %w", n.cfg.Name, err)
	}
	p.impairUp.at(p)
	p.impairDown.at(p)
	n.ports = append(n.ports, p)
	n.byName[cfg.Name] = p
	for _, a := range p.cfg.Addrs {
		n.byAddr[a] = p
	}
	return p, nil
}

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
	return p.cfg.Link.validate()
}

// plain is the one form in which an address is looked up and travels.
func plain(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// stream names a random stream of a port's or a trunk's.
func (n *Net) stream(place, use string) string { return n.cfg.Name + "/" + place + "/" + use }

// Ports returns the ports in the order they were attached.
func (n *Net) Ports() []*Port { return n.ports }

// World returns the world that the network is in.
func (n *Net) World() *World { return n.w }

// Port returns the port of that name, nil if there is none.
func (n *Net) Port(name string) *Port { return n.byName[name] }

// SetTap shows every packet to t from now on; nil ends it.
func (n *Net) SetTap(t Tap) { n.tap = t }

// DropTap sees packets that end on the way: where, and for what cause. One that a
// pipe holds back for others to overtake is shown too, and may arrive later.
type DropTap func(now mono.Time, place, cause string, d *link.Datagram)

// SetDropTap shows every packet that is dropped to t from now on; nil ends it.
func (n *Net) SetDropTap(t DropTap) { n.dropTap = t }
