package netns

import (
	"net"
	"net/netip"
	"slices"

	"github.com/fabrictest/fabrictest/netns/topology"
)

// planNeighbours plans static neighbour and FDB entries for every interface, so that no frame is
// sent or flooded to resolve addresses, and frame counts are reproducible.
func (p *plan) planNeighbours() {
	for _, seg := range p.t.Segments() {
		var all []neighbour
		for _, port := range seg.Ports {
			d := p.addressedDevice(port)
			for _, a := range d.addrs {
				all = append(all, neighbour{a.Addr(), d})
			}
		}
		for _, port := range seg.Ports {
			p.addressedDevice(port).neighbours = all
		}
	}
	for _, c := range p.cables {
		for side, port := range []topology.Port{c.A, c.B} {
			if d := c.ends[side]; d.master != nil {
				d.fdb = p.macsBehind(c.Other(port), d.master)
			}
		}
	}
}

// addressedDevice returns the interface with the port's addresses: its own, or its bridge.
func (p *plan) addressedDevice(port topology.Port) *device {
	d := p.ports[port.String()]
	if d.master != nil {
		return d.master
	}
	return d
}

// macsBehind lists the MAC addresses that a bridge, sender, reaches over its cable to port. The
// bridge's own address is not among them.
func (p *plan) macsBehind(port topology.Port, sender *device) []net.HardwareAddr {
	// A bridge of an unrouted switch has no address; d is sender if the cable is a loop.
	if d := p.addressedDevice(port); len(d.addrs) > 0 && d != sender {
		macs := []net.HardwareAddr{d.mac}
		if d.bridge {
			macs = append(macs, p.macsBehindOtherPorts(port)...)
		}
		return macs
	}
	return p.macsBehindOtherPorts(port)
}

// macsBehindOtherPorts lists the MAC addresses that a frame can reach through the other ports of a
// switch if it enters the switch at port.
func (p *plan) macsBehindOtherPorts(port topology.Port) []net.HardwareAddr {
	var macs []net.HardwareAddr
	for _, c := range p.t.CablesOf(port.Node) {
		out := c.A
		if out.Node != port.Node {
			out = c.B
		}
		if !out.Same(port) && p.bridged(out, port) {
			macs = append(macs, p.macsBehind(c.Other(out), p.ports[out.String()].master)...)
		}
	}
	return macs
}

// bridged reports whether frames pass between two ports of one switch: in a routed switch, between
// those with the same addresses.
func (p *plan) bridged(a, b topology.Port) bool {
	sw, ok := p.t.Switch(a.Node)
	return ok && (!sw.Routed || slices.Equal(a.Addrs, b.Addrs))
}

// hostRoutes plans a route from each NIC through its gateways to each subnet of its rail but its
// own. A default route could not separate the rails.
func (p *plan) hostRoutes() {
	subnets := p.subnets()
	for _, h := range p.t.Hosts {
		s := p.nodes[h.Name]
		for _, n := range h.NICs {
			d := p.ports[topology.Port{Node: h.Name, NIC: n.Name}.String()]
			for _, dst := range subnets[n.Rail] {
				connected := slices.ContainsFunc(n.Addrs, func(a netip.Prefix) bool { return a.Masked() == dst })
				for _, g := range n.Gateways {
					if !connected && g.Is4() == dst.Addr().Is4() {
						s.routes[dst] = append(s.routes[dst], hop{g, d})
					}
				}
			}
		}
	}
}

// subnets returns the subnets that have hosts, by rail.
func (p *plan) subnets() map[int][]netip.Prefix {
	all := map[int][]netip.Prefix{}
	seen := map[netip.Prefix]bool{}
	for _, h := range p.t.Hosts {
		for _, n := range h.NICs {
			for _, a := range n.Addrs {
				if net := a.Masked(); !seen[net] {
					seen[net] = true
					all[n.Rail] = append(all[n.Rail], net)
				}
			}
		}
	}
	return all
}

// routerRoutes returns the routes of routed switches over the cables that are up. A subnet that a
// switch cannot reach has no hops.
func (p *plan) routerRoutes() map[string]map[netip.Prefix][]hop {
	down := map[string]bool{} // by the first port of a cable
	for _, c := range p.cables {
		down[c.A.String()] = c.down
	}
	all := map[string]map[netip.Prefix][]hop{}
	for _, r := range p.t.Routes(func(c topology.Cable) bool { return !down[c.A.String()] }) {
		if all[r.Switch] == nil {
			all[r.Switch] = map[netip.Prefix][]hop{}
		}
		hops := make([]hop, 0, len(r.Via))
		for _, via := range r.Via {
			hops = append(hops, hop{via.Addr, p.ports[via.Out.String()]})
		}
		all[r.Switch][r.Dst] = hops
	}
	return all
}
