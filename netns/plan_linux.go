package netns

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/netns/topology"
)

// plan is what will be made of a topology: which namespaces, which interfaces in
// them, and what each interface is told. Making it touches nothing.
type plan struct {
	t      topology.Topology
	opts   Options
	spaces []*space
	nodes  map[string]*space // hosts and routed switches
	core   *space            // nil if nothing is in it
	pairs  [][2]*device
	cables []*cable       // in the order of t.Cables
	shared map[string]int // how many ports have a routed switch's address
	ports  map[string]*device
	user   map[string][]UserPort
	// indexes counts interfaces, of which no two have the same index, wherever
	// they are. Ends of a veth pair with equal ones the kernel takes for something
	// other than a pair, and is up to a second late to notice their carrier.
	indexes int
}

// space is a namespace.
type space struct {
	plan    *plan
	name    string
	routed  bool
	ns      *NS
	devices []*device
	routes  map[netip.Prefix][]hop // of a host; a router's follow from what is up
	groups  map[string]*device     // of a router: bridges by their address
}

// device is an interface.
type device struct {
	space   *space
	name    string
	index   int
	mac     net.HardwareAddr
	mtu     int
	bridge  bool
	master  *device // the bridge that it is plugged into
	addrs   []netip.Prefix
	segment []neighbour        // all of it, itself too; shared by its interfaces
	behind  []net.HardwareAddr // of a bridge's port: what it leads to
	// cutInSoftware makes the kernel cut super-packets before the device. A
	// bridge lets those pass whatever their segments are; and some of its ports
	// take larger ones than this.
	cutInSoftware bool
	queue         queue
	counts        bool   // a queue is in place whose drops count
	dropped       uint64 // by queues before it
}

// neighbour is an address in a segment, and whose it is.
type neighbour struct {
	addr netip.Addr
	of   *device
}

// cable is a cable of the topology, and the interfaces at its ends.
type cable struct {
	topology.Cable
	cut  bool
	ends [2]*device
	// halves are where a cut cable ends in the core; nil if it is whole.
	halves [2]*device
	down   bool
}

func newPlan(t topology.Topology, opts Options) (*plan, error) {
	if err := t.Validate(); err != nil {
		return nil, err
	}
	p := &plan{
		t: t, opts: opts, nodes: map[string]*space{}, shared: map[string]int{},
		ports: map[string]*device{}, user: map[string][]UserPort{},
	}
	for _, c := range t.Cables {
		p.cables = append(p.cables, &cable{Cable: c, cut: opts.UserCable != nil && opts.UserCable(c)})
		p.shared[groupOf(c.A)]++
		p.shared[groupOf(c.B)]++
	}
	for _, h := range t.Hosts {
		p.nodes[h.Name] = p.newSpace(h.Name, false)
		for _, n := range h.NICs {
			if len(n.Name) >= unix.IFNAMSIZ || n.Name == "lo" {
				return nil, fmt.Errorf("%s: NIC name %q: Linux takes names of up to %d bytes, and lo is taken", h.Name, n.Name, unix.IFNAMSIZ-1)
			}
		}
	}
	for _, s := range t.Switches {
		if s.Routed {
			p.nodes[s.Name] = p.newSpace(s.Name, true)
		}
	}
	if err := p.layCables(); err != nil {
		return nil, err
	}
	p.mixedMTUs()
	p.introduce()
	p.hostRoutes()
	return p, nil
}

func (p *plan) newSpace(name string, routed bool) *space {
	s := &space{plan: p, name: name, routed: routed, routes: map[netip.Prefix][]hop{}, groups: map[string]*device{}}
	p.spaces = append(p.spaces, s)
	return s
}

func (p *plan) coreSpace() *space {
	if p.core == nil {
		p.core = p.newSpace("the core", false)
	}
	return p.core
}

func (s *space) newDevice(name string, mac net.HardwareAddr, mtu int) *device {
	s.plan.indexes++
	d := &device{space: s, name: name, index: loopbackIndex + s.plan.indexes, mac: mac, mtu: mtu}
	s.devices = append(s.devices, d)
	return d
}

// layCables makes the interfaces of every cable, and the bridges they need.
func (p *plan) layCables() error {
	inUserSpace := p.userSwitches()
	bridges := map[string]*device{} // of unrouted switches
	for i, s := range p.t.Switches {
		if !s.Routed && !inUserSpace[s.Name] && len(p.t.CablesOf(s.Name)) > 0 {
			b := p.coreSpace().newDevice(fmt.Sprintf("br%d", i), p.t.MAC(topology.Port{Node: s.Name, Num: 0xffff}), 0)
			b.bridge = true
			bridges[s.Name] = b
		}
	}
	for i, c := range p.cables {
		if err := p.promises(c); err != nil {
			return err
		}
		mtu := cmp.Or(c.Link.MTU, DefaultMTU)
		user := false
		for side, port := range []topology.Port{c.A, c.B} {
			d := p.endOf(port, c.Other(port), mtu)
			d.plugInto(bridges[port.Node])
			d.cutInSoftware = c.cut && p.opts.SegmentGSO
			c.ends[side] = d
			p.ports[port.String()] = d
			if inUserSpace[port.Node] {
				user = true
				p.user[port.Node] = append(p.user[port.Node], UserPort{Device: d.name, Port: port, Far: c.Other(port), Cable: c.Cable})
			}
		}
		if c.cut && !user {
			for side, suffix := range []string{"a", "b"} {
				mac := append(net.HardwareAddr{0x02, 0xfc, byte(i >> 16), byte(i >> 8), byte(i)}, byte(side))
				c.halves[side] = p.coreSpace().newDevice(fmt.Sprintf("c%d%s", i, suffix), mac, mtu)
				p.pairs = append(p.pairs, [2]*device{c.halves[side], c.ends[side]})
			}
		} else {
			p.pairs = append(p.pairs, [2]*device{c.ends[1], c.ends[0]})
		}
	}
	return nil
}

// promises refuses what nobody would keep: no veth delays or marks packets.
func (p *plan) promises(c *cable) error {
	switch l := c.Link; {
	case c.cut:
		return nil // for whoever joins the halves
	case l.ECN != topology.ECN{}:
		return fmt.Errorf("cable %v: the kernel's links mark no packets: splice the cable (Options.UserCable)", c)
	case l.Latency != 0 && !p.opts.Netem:
		return fmt.Errorf("cable %v: the kernel's links have no latency: splice the cable (Options.UserCable) or use netem (Options.Netem)", c)
	default:
		return nil
	}
}

// userSwitches are those that have all of their cables cut.
func (p *plan) userSwitches() map[string]bool {
	cables, cut := map[string]int{}, map[string]int{}
	for _, c := range p.cables {
		for _, node := range []string{c.A.Node, c.B.Node} {
			cables[node]++
			if c.cut {
				cut[node]++
			}
		}
	}
	user := map[string]bool{}
	for _, s := range p.t.Switches {
		user[s.Name] = !s.Routed && cables[s.Name] > 0 && cut[s.Name] == cables[s.Name]
	}
	return user
}

// endOf makes the interface that is a port, whose cable leads to far.
func (p *plan) endOf(port, far topology.Port, mtu int) *device {
	s, name := p.nodes[port.Node], port.NIC
	switch {
	case s == nil:
		s = p.coreSpace()
		name = fmt.Sprintf("sw%dp%d", p.switchIndex(port.Node), port.Num)
	case s.routed:
		name = fmt.Sprintf("port%d", port.Num)
	}
	d := s.newDevice(name, p.t.MAC(port), mtu)
	switch {
	case !s.routed:
		d.addrs = p.t.AddrsOf(port)
	case p.nodes[far.Node] != nil && p.nodes[far.Node].routed && p.shared[groupOf(port)] == 1:
		// Only a router is there: the address is the port's own.
		d.addrs = port.Addrs
	default:
		// Hosts: the address is that of a bridge, though it may have one port only. So
		// the port can be set down without the loss of the address.
		d.plugInto(s.group(port, d.mac))
	}
	return d
}

func (p *plan) switchIndex(name string) int {
	for i, s := range p.t.Switches {
		if s.Name == name {
			return i
		}
	}
	return -1
}

// group is the bridge of the ports that have one address in common.
func (s *space) group(port topology.Port, mac net.HardwareAddr) *device {
	key := groupOf(port)
	if s.groups[key] == nil {
		b := s.newDevice(fmt.Sprintf("lan%d", len(s.groups)), mac, 0)
		b.bridge, b.addrs = true, port.Addrs
		s.groups[key] = b
	}
	return s.groups[key]
}

// groupOf names the ports of a routed switch that are bridged.
func groupOf(port topology.Port) string {
	if len(port.Addrs) == 0 {
		return port.Node
	}
	return port.Node + " " + port.Addrs[0].String()
}

func (d *device) plugInto(bridge *device) {
	if bridge != nil {
		d.master = bridge
		bridge.mtu = max(bridge.mtu, d.mtu)
	}
}

func (p *plan) mixedMTUs() {
	for _, s := range p.spaces {
		for _, d := range s.devices {
			d.cutInSoftware = d.cutInSoftware || d.master != nil && d.mtu < d.master.mtu
		}
	}
}
