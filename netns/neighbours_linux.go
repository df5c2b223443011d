package netns

import (
	"net"
	"net/netip"
	"slices"

	"github.com/fabrictest/fabrictest/netns/topology"
)

// introduce tells every interface with addresses who else is in its segment, and
// every port of a bridge what is behind it: so no frame is ever sent to find
// out, none is lost meanwhile, and runs count the same frames.
func (p *plan) introduce() {
	for _, seg := range p.t.Segments() {
		var all []neighbour
		for _, port := range seg.Ports {
			d := p.addressed(port)
			for _, a := range d.addrs {
				all = append(all, neighbour{a.Addr(), d})
			}
		}
		for _, port := range seg.Ports {
			p.addressed(port).segment = all
		}
	}
	for _, c := range p.cables {
		for side, port := range []topology.Port{c.A, c.B} {
			if d := c.ends[side]; d.master != nil {
				d.behind = p.behind(c.Other(port), d.master)
			}
		}
	}
}

// addressed is the interface that has the port's addresses: itself, or the
// bridge it is plugged into.
func (p *plan) addressed(port topology.Port) *device {
	d := p.ports[port.String()]
	if d.master != nil {
		return d.master
	}
	return d
}

// behind lists the hardware addresses that a frame finds when it enters port,
// which is not one of the bridge it comes from.
func (p *plan) behind(port topology.Port, from *device) []net.HardwareAddr {
	if d := p.addressed(port); len(d.addrs) > 0 && d != from {
		macs := []net.HardwareAddr{d.mac}
		if d.bridge {
			macs = append(macs, p.behindOthers(port)...)
		}
		return macs
	}
	return p.behindOthers(port)
}

func (p *plan) behindOthers(port topology.Port) []net.HardwareAddr {
	var macs []net.HardwareAddr
	for _, c := range p.t.CablesOf(port.Node) {
		out := c.A
		if out.Node != port.Node {
			out = c.B
		}
		if !out.Same(port) && p.joined(out, port) {
			macs = append(macs, p.behind(c.Other(out), p.ports[out.String()].master)...)
		}
	}
	return macs
}

// joined says that frames pass between two ports of one switch.
func (p *plan) joined(a, b topology.Port) bool {
	sw, ok := p.t.Switch(a.Node)
	return ok && (!sw.Routed || slices.Equal(a.Addrs, b.Addrs))
}

// hostRoutes gives hosts behind a gateway a route to each subnet of their rail:
// a default route could not tell rails apart.
func (p *plan) hostRoutes() {
	subnets := p.subnets()
	for _, h := range p.t.Hosts {
		s := p.nodes[h.Name]
		for _, n := range h.NICs {
			d := p.ports[topology.Port{Node: h.Name, NIC: n.Name}.String()]
			for _, dst := range subnets[n.Rail] {
				own := slices.ContainsFunc(n.Addrs, func(a netip.Prefix) bool { return a.Masked() == dst })
				for _, g := range n.Gateways {
					if !own && g.Is4() == dst.Addr().Is4() {
						s.routes[dst] = append(s.routes[dst], hop{g, d})
					}
				}
			}
		}
	}
}

// subnets are those with hosts, by rail.
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

// routerRoutes are the routes of routed switches over the cables that are up.
func (p *plan) routerRoutes() map[string]map[netip.Prefix][]hop {
	down := map[string]bool{}
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
