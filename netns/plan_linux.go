package netns

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/netns/topology"
)

// plan lists the namespaces and interfaces to create for a topology. Creating a
// plan does not change the system.
type plan struct {
	t             topology.Topology
	opts          Options
	namespaces    []*namespace
	nodes         map[string]*namespace // of hosts and routed switches
	core          *namespace            // nil if empty
	pairs         [][2]*device          // veth pairs; the namespace of the first device creates both
	cables        []*cable              // in the order of t.Cables
	portsWithAddr map[string]int        // number of ports by bridgeKey
	ports         map[string]*device
	userPorts     map[string][]UserPort
	// ifindexes counts interfaces: indexes are unique across namespaces. If both ends of a veth
	// pair have the same index, the kernel notices their carrier up to a second late.
	ifindexes int
}

// namespace is a network namespace of the plan.
type namespace struct {
	plan    *plan
	name    string
	routed  bool
	ns      *NS
	devices []*device
	routes  map[netip.Prefix][]hop // of a host; those of routers depend on the cables that are up
	bridges map[string]*device     // of a router, by bridgeKey
}

// device is a network interface.
type device struct {
	namespace  *namespace
	name       string
	index      int
	mac        net.HardwareAddr
	mtu        int
	bridge     bool
	master     *device // its bridge, or nil
	addrs      []netip.Prefix
	neighbours []neighbour        // addresses of the segment, including its own; shared
	fdb        []net.HardwareAddr // of a bridge port: addresses reached through it
	// softwareGSO makes the kernel segment GSO packets before the device. A bridge forwards them
	// whatever their segment size, even to ports with a smaller MTU.
	softwareGSO   bool
	qdisc         qdisc
	countsDrops   bool   // the current qdisc counts drops
	droppedBefore uint64 // by previous qdiscs
}

// neighbour is an address of a segment and its interface.
type neighbour struct {
	addr   netip.Addr
	device *device
}

// cable is a cable of the topology and the interfaces at its ends.
type cable struct {
	topology.Cable
	user bool // connected by user space
	ends [2]*device
	// halves are the ends of a user-space cable in the core; nil otherwise.
	halves [2]*device
	down   bool
}

// newPlan plans the namespaces, interfaces, neighbours and routes of a topology.
func newPlan(t topology.Topology, opts Options) (*plan, error) {
	if err := t.Validate(); err != nil {
		return nil, err
	}
	p := &plan{
		t: t, opts: opts, nodes: map[string]*namespace{}, portsWithAddr: map[string]int{},
		ports: map[string]*device{}, userPorts: map[string][]UserPort{},
	}
	for _, c := range t.Cables {
		p.cables = append(p.cables, &cable{Cable: c, user: opts.UserCable != nil && opts.UserCable(c)})
		p.portsWithAddr[bridgeKey(c.A)]++
		p.portsWithAddr[bridgeKey(c.B)]++
	}
	for _, h := range t.Hosts {
		p.nodes[h.Name] = p.newNamespace(h.Name)
		for _, n := range h.NICs {
			if len(n.Name) >= unix.IFNAMSIZ || n.Name == "lo" {
				return nil, fmt.Errorf("%s: NIC name %q: Linux takes names of up to %d bytes, and lo is taken", h.Name, n.Name, unix.IFNAMSIZ-1)
			}
		}
	}
	for _, s := range t.Switches {
		if s.Routed {
			p.nodes[s.Name] = p.newNamespace(s.Name)
			p.nodes[s.Name].routed = true
		}
	}
	if err := p.planCables(); err != nil {
		return nil, err
	}
	p.planSoftwareGSO()
	p.planNeighbours()
	p.hostRoutes()
	return p, nil
}

func (p *plan) newNamespace(name string) *namespace {
	s := &namespace{plan: p, name: name, routes: map[netip.Prefix][]hop{}, bridges: map[string]*device{}}
	p.namespaces = append(p.namespaces, s)
	return s
}

// coreNamespace returns the core, the namespace of bridges and user-space cables, which the first
// call adds to the plan.
func (p *plan) coreNamespace() *namespace {
	if p.core == nil {
		p.core = p.newNamespace("the core")
	}
	return p.core
}

// newDevice adds an interface to the plan of the namespace. Its index is unique in the fabric.
func (s *namespace) newDevice(name string, mac net.HardwareAddr, mtu int) *device {
	s.plan.ifindexes++
	d := &device{namespace: s, name: name, index: loopbackIndex + s.plan.ifindexes, mac: mac, mtu: mtu}
	s.devices = append(s.devices, d)
	return d
}

// planCables plans the interfaces of every cable and the bridges.
func (p *plan) planCables() error {
	inUserSpace := p.userSwitches()
	const bridgePort = 0xffff       // for the MAC of a bridge; no port has this number
	bridges := map[string]*device{} // of unrouted switches
	for i, s := range p.t.Switches {
		if !s.Routed && !inUserSpace[s.Name] && len(p.t.CablesOf(s.Name)) > 0 {
			b := p.coreNamespace().newDevice(fmt.Sprintf("br%d", i), p.t.MAC(topology.Port{Node: s.Name, Num: bridgePort}), 0)
			b.bridge = true
			bridges[s.Name] = b
		}
	}
	for i, c := range p.cables {
		if err := p.checkLinkSupport(c); err != nil {
			return err
		}
		mtu := cmp.Or(c.Link.MTU, DefaultMTU)
		atUserSwitch := false
		for side, port := range []topology.Port{c.A, c.B} {
			d := p.planPort(port, c.Other(port), mtu)
			d.setMaster(bridges[port.Node])
			d.softwareGSO = c.user && p.opts.SegmentGSO
			c.ends[side] = d
			p.ports[port.String()] = d
			if inUserSpace[port.Node] {
				atUserSwitch = true
				p.userPorts[port.Node] = append(p.userPorts[port.Node], UserPort{Device: d.name, Port: port, Far: c.Other(port), Cable: c.Cable})
			}
		}
		if c.user && !atUserSwitch { // user space connects the halves, which are in the core
			for side, suffix := range []string{"a", "b"} {
				// Locally administered, and unique by cable and side.
				mac := append(net.HardwareAddr{0x02, 0xfc, byte(i >> 16), byte(i >> 8), byte(i)}, byte(side))
				c.halves[side] = p.coreNamespace().newDevice(fmt.Sprintf("c%d%s", i, suffix), mac, mtu)
				p.pairs = append(p.pairs, [2]*device{c.halves[side], c.ends[side]})
			}
		} else {
			p.pairs = append(p.pairs, [2]*device{c.ends[1], c.ends[0]}) // the side of the switch creates the pair
		}
	}
	return nil
}

// checkLinkSupport rejects link settings that a veth pair does not support:
// ECN, and latency without netem.
func (p *plan) checkLinkSupport(c *cable) error {
	switch l := c.Link; {
	case c.user:
		return nil // user space implements them
	case l.ECN != topology.ECN{}:
		return fmt.Errorf("cable %v: the kernel's links mark no packets: make it a user-space cable (Options.UserCable)", c)
	case l.Latency != 0 && !p.opts.Netem:
		return fmt.Errorf("cable %v: the kernel's links have no latency: make it a user-space cable (Options.UserCable) or use netem (Options.Netem)", c)
	default:
		return nil
	}
}

// userSwitches returns the unrouted switches with only user-space cables.
func (p *plan) userSwitches() map[string]bool {
	cables, userCables := map[string]int{}, map[string]int{}
	for _, c := range p.cables {
		for _, node := range []string{c.A.Node, c.B.Node} {
			cables[node]++
			if c.user {
				userCables[node]++
			}
		}
	}
	user := map[string]bool{}
	for _, s := range p.t.Switches {
		user[s.Name] = !s.Routed && cables[s.Name] > 0 && userCables[s.Name] == cables[s.Name]
	}
	return user
}

// planPort plans the interface of a port whose cable leads to far.
func (p *plan) planPort(port, far topology.Port, mtu int) *device {
	s, name := p.nodes[port.Node], port.NIC
	switch {
	case s == nil:
		s = p.coreNamespace()
		name = fmt.Sprintf("sw%dp%d", p.switchIndex(port.Node), port.Num)
	case s.routed:
		name = fmt.Sprintf("port%d", port.Num)
	}
	d := s.newDevice(name, p.t.MAC(port), mtu)
	switch {
	case !s.routed:
		d.addrs = p.t.AddrsOf(port)
	case p.nodes[far.Node] != nil && p.nodes[far.Node].routed && p.portsWithAddr[bridgeKey(port)] == 1:
		// The far end is a router, and no other port shares the address: the port itself has it.
		d.addrs = port.Addrs
	default:
		// The far end is a host or an unrouted switch, or several ports share the address: a
		// bridge has it. Setting a port of the bridge down does not remove the address.
		d.setMaster(s.bridgeFor(port, d.mac))
	}
	return d
}

func (p *plan) switchIndex(name string) int {
	return slices.IndexFunc(p.t.Switches, func(s topology.Switch) bool { return s.Name == name })
}

// bridgeFor returns the bridge that all ports with the address of port share. The first call for an
// address adds the bridge to the plan, with the given MAC.
func (s *namespace) bridgeFor(port topology.Port, mac net.HardwareAddr) *device {
	key := bridgeKey(port)
	if s.bridges[key] == nil {
		b := s.newDevice(fmt.Sprintf("lan%d", len(s.bridges)), mac, 0)
		b.bridge, b.addrs = true, port.Addrs
		s.bridges[key] = b
	}
	return s.bridges[key]
}

// bridgeKey identifies the ports of a routed switch that share a bridge: those with the same first
// address.
func bridgeKey(port topology.Port) string {
	if len(port.Addrs) == 0 {
		return port.Node // a host or an unrouted switch, for which no key is looked up
	}
	return port.Node + " " + port.Addrs[0].String()
}

// setMaster makes d a port of a bridge, whose MTU is the largest of its ports. It does nothing if
// bridge is nil.
func (d *device) setMaster(bridge *device) {
	if bridge != nil {
		d.master = bridge
		bridge.mtu = max(bridge.mtu, d.mtu)
	}
}

// planSoftwareGSO makes the kernel segment GSO packets before bridge ports with a smaller MTU than
// their bridge. The bridge would forward segments that are too long for such a port.
func (p *plan) planSoftwareGSO() {
	for _, s := range p.namespaces {
		for _, d := range s.devices {
			d.softwareGSO = d.softwareGSO || d.master != nil && d.mtu < d.master.mtu
		}
	}
}
