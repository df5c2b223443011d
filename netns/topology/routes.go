package topology

import (
	"net/netip"
	"slices"
)

// Route is the route of a routed switch to a remote subnet.
type Route struct {
	Switch string
	Dst    netip.Prefix
	// Via are the equal-cost next hops, in the order of ports. It is empty if
	// there is no path.
	Via []NextHop
}

// NextHop is an outgoing port and the address of the next router.
type NextHop struct {
	Out  Port // of the switch itself
	Addr netip.Addr
}

// Routes returns the shortest-path routes of all routed switches to all subnets
// with hosts on the switch's rail, over the cables that are up (all if up is nil), as a converged
// routing protocol would. They are ordered by switch, then by subnet.
func (t Topology) Routes(up func(Cable) bool) []Route {
	g := t.routerGraph(up)
	var routes []Route
	for _, sw := range t.Switches {
		if !sw.Routed {
			continue
		}
		for _, net := range g.subnets {
			if r, ok := g.route(sw.Name, net); ok && sw.Rail == net.rail {
				routes = append(routes, r)
			}
		}
	}
	return routes
}

// routerGraph is the routed switches and the cables between them.
type routerGraph struct {
	links   map[string][]routerLink // by switch, ordered by port number
	subnets []*subnet
}

// routerLink is a cable as seen from one of its switches.
type routerLink struct {
	out Port // of this switch
	far Port // of the other switch
}

// subnet is a subnet with hosts and the distance of each router to it.
type subnet struct {
	prefix netip.Prefix
	rail   int
	hops   map[string]int // by switch; a switch without a path is absent
}

// routerGraph returns the graph of the routed switches and the cables between them that are up (all
// if up is nil), with the distance of every switch to every subnet.
func (t Topology) routerGraph(up func(Cable) bool) *routerGraph {
	g := &routerGraph{links: map[string][]routerLink{}}
	routed := map[string]bool{}
	for _, s := range t.Switches {
		routed[s.Name] = s.Routed
	}
	for _, c := range t.Cables {
		if routed[c.A.Node] && routed[c.B.Node] && (up == nil || up(c)) {
			g.links[c.A.Node] = append(g.links[c.A.Node], routerLink{c.A, c.B})
			g.links[c.B.Node] = append(g.links[c.B.Node], routerLink{c.B, c.A})
		}
	}
	for _, links := range g.links { // next hops are listed in the order of port numbers
		slices.SortFunc(links, func(a, b routerLink) int { return a.out.Num - b.out.Num })
	}
	for _, seg := range t.Segments() {
		g.addSubnets(t, seg)
	}
	return g
}

// addSubnets adds the subnets of a segment that has both hosts and routers. A breadth-first
// search from those routers finds the distance of every other router.
func (g *routerGraph) addSubnets(t Topology, seg Segment) {
	var gateways []Port
	var host *Port
	for i, p := range seg.Ports {
		if p.NIC == "" { // only ports of hosts have a NIC
			gateways = append(gateways, p)
		} else {
			host = &seg.Ports[i]
		}
	}
	if host == nil || gateways == nil {
		return
	}
	nic, _ := t.NIC(*host) // all hosts of a segment are in the same subnets
	for _, a := range nic.Addrs {
		net := &subnet{prefix: a.Masked(), rail: nic.Rail, hops: map[string]int{}}
		var next []string
		for _, p := range gateways {
			net.hops[p.Node] = 0
			next = append(next, p.Node)
		}
		for len(next) > 0 {
			at := next[0]
			next = next[1:]
			for _, l := range g.links[at] {
				if _, seen := net.hops[l.far.Node]; !seen {
					net.hops[l.far.Node] = net.hops[at] + 1
					next = append(next, l.far.Node)
				}
			}
		}
		g.subnets = append(g.subnets, net)
	}
}

// route returns the route of a switch to a subnet. Its next hops are all neighbours that are one
// hop nearer to the subnet; none if there is no path. ok is false if the switch is in the subnet.
func (g *routerGraph) route(sw string, net *subnet) (r Route, ok bool) {
	hops, reached := net.hops[sw]
	if reached && hops == 0 {
		return Route{}, false
	}
	r = Route{Switch: sw, Dst: net.prefix}
	if !reached {
		return r, true
	}
	for _, l := range g.links[sw] {
		if farHops, ok := net.hops[l.far.Node]; ok && farHops == hops-1 {
			for _, a := range l.far.Addrs {
				if a.Addr().Is4() == net.prefix.Addr().Is4() {
					r.Via = append(r.Via, NextHop{Out: l.out, Addr: a.Addr()})
				}
			}
		}
	}
	return r, true
}
