package topology

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Limits of a link's MTU: the minimum of IPv6 and the largest IP packet.
const (
	MinMTU = 1280
	MaxMTU = 65535
)

// Validate returns all errors of a topology, one per line. A valid topology can be built.
func (t Topology) Validate() error {
	v := &validator{t: t, index: t.index(), seen: map[string]bool{}, ends: map[string]bool{}}
	v.checkNodes()
	v.checkCables()
	if v.errs == nil { // otherwise the remaining checks would repeat errors
		v.checkAddresses()
		v.checkSegments()
	}
	return errors.Join(v.errs...)
}

// validator collects the errors of a topology.
type validator struct {
	t Topology
	index
	seen map[string]bool // names of nodes
	ends map[string]bool // ports that have a cable
	errs []error
}

// addError adds an error.
func (v *validator) addError(format string, args ...any) {
	v.errs = append(v.errs, fmt.Errorf(format, args...))
}

// checkNodes checks the names of hosts, NICs and switches, and that every NIC has an address.
func (v *validator) checkNodes() {
	if len(v.t.Hosts) == 0 {
		v.addError("there is no host")
	}
	for _, h := range v.t.Hosts {
		v.checkNodeName("host", h.Name)
		nics := map[string]bool{}
		for _, n := range h.NICs {
			place := h.Name + "/" + n.Name
			switch {
			case n.Name == "" || strings.ContainsAny(n.Name, forbiddenInNames):
				v.addError("%s: NIC name %q: it must not be empty nor contain any of %q", h.Name, n.Name, forbiddenInNames)
			case nics[n.Name]:
				v.addError("%s: there are two NICs of this name", place)
			}
			nics[n.Name] = true
			if len(n.Addrs) == 0 {
				v.addError("%s: it has no address", place)
			}
		}
	}
	for _, s := range v.t.Switches {
		v.checkNodeName("switch", s.Name)
	}
}

const forbiddenInNames = "/*?[] \t\n"

// checkNodeName checks that a node's name is valid and unique. kind is for the message.
func (v *validator) checkNodeName(kind, name string) {
	switch {
	case name == "" || strings.ContainsAny(name, forbiddenInNames):
		v.addError("%s name %q: it must not be empty nor contain any of %q", kind, name, forbiddenInNames)
	case v.seen[name]:
		v.addError("%s: there are two nodes of this name", name)
	}
	v.seen[name] = true
}

// checkCables checks every cable's ends and link, and that every NIC has a cable.
func (v *validator) checkCables() {
	for _, c := range v.t.Cables {
		if c.A.Same(c.B) {
			v.addError("cable %v: both ends are the same port", c)
			continue
		}
		v.checkEnd(c, c.A)
		v.checkEnd(c, c.B)
		v.checkLink(c)
	}
	for _, h := range v.t.Hosts {
		for _, n := range h.NICs {
			if p := (Port{Node: h.Name, NIC: n.Name}); !v.ends[p.String()] {
				v.addError("%v: no cable is plugged in", p)
			}
		}
	}
}

// checkEnd checks that the end p of a cable is an existing port without another cable, and that p
// sets the fields for its node (a host, a routed or an unrouted switch) and no others.
func (v *validator) checkEnd(c Cable, p Port) {
	nics, isHost := v.hosts[p.Node]
	sw := v.switches[p.Node]
	switch {
	case !isHost && sw == nil:
		v.addError("cable %v: there is no node %s", c, p.Node)
	case isHost && nics[p.NIC] == nil:
		v.addError("cable %v: %s has no NIC %q", c, p.Node, p.NIC)
	case isHost && (p.Num != 0 || p.Addrs != nil):
		v.addError("cable %v: %s is a host: its ports have no number, and its addresses belong to the NIC", c, p.Node)
	case sw != nil && (p.NIC != "" || p.Num < 0):
		v.addError("cable %v: %s is a switch: its ports have numbers from 0", c, p.Node)
	case sw != nil && sw.Routed != (len(p.Addrs) > 0):
		v.addError("cable %v: the ports of routed switches must have addresses, those of other switches none", c)
	case v.ends[p.String()]:
		v.addError("%v: two cables are plugged in", p)
	}
	v.ends[p.String()] = true
}

// checkLink checks the ranges of a link's settings.
func (v *validator) checkLink(c Cable) {
	l := c.Link
	if l.MTU != 0 && (l.MTU < MinMTU || l.MTU > MaxMTU) {
		v.addError("cable %v: MTU %d: must be %d (the minimum of IPv6) to %d", c, l.MTU, MinMTU, MaxMTU)
	}
	if l.Latency < 0 || l.QueueBytes < 0 {
		v.addError("cable %v: latency %v, queue of %d bytes: neither may be negative", c, l.Latency, l.QueueBytes)
	}
	if e := l.ECN; e.MinBytes < 0 || e.MaxBytes < e.MinBytes || e.MaxPPM > 1e6 {
		v.addError("cable %v: ECN from %d to %d bytes, %d ppm: must be 0 ≤ min ≤ max, and at most 1000000 ppm",
			c, e.MinBytes, e.MaxBytes, e.MaxPPM)
	}
}

// checkAddresses checks for duplicate addresses. A routed switch may have one
// address at several ports, which it bridges.
func (v *validator) checkAddresses() {
	owner := map[netip.Addr]Port{}
	for _, p := range v.t.Ports() {
		for _, a := range v.addrs(p) {
			old, taken := owner[a.Addr()]
			if taken && (p.NIC != "" || old.Node != p.Node) {
				v.addError("%v: address %v is that of %v too", p, a.Addr(), old)
			}
			owner[a.Addr()] = p
		}
	}
}

// checkSegments checks that no switches form a loop, and checks each segment.
func (v *validator) checkSegments() {
	if _, loop := v.t.broadcastDomains(v.index); loop != nil {
		v.addError("cable %v: it closes a loop of switches, in which frames would circulate forever", *loop)
	}
	for _, s := range v.t.Segments() {
		v.checkSegment(s)
	}
}

// checkSegment checks that all ports of a segment are on one rail and in the same subnets, and
// that the gateways of its NICs are addresses of its routers.
func (v *validator) checkSegment(s Segment) {
	if len(s.Ports) == 0 {
		return
	}
	first := s.Ports[0]
	routerAddrs := map[netip.Addr]bool{}
	for _, p := range s.Ports {
		if !sameSubnets(v.addrs(first), v.addrs(p)) {
			v.addError("%v and %v: they are cabled to one segment, but the subnets %v and %v differ",
				first, p, v.addrs(first), v.addrs(p))
		}
		if a, b := v.rail(first), v.rail(p); a != b {
			v.addError("%v and %v: they are cabled to one segment, but the rails %d and %d differ", first, p, a, b)
		}
		for _, a := range p.Addrs {
			routerAddrs[a.Addr()] = true
		}
	}
	for _, p := range s.Ports {
		n := v.hosts[p.Node][p.NIC]
		if n == nil {
			continue
		}
		for _, g := range n.Gateways {
			if !routerAddrs[g] {
				v.addError("%v: gateway %v: no switch in its segment has this address", p, g)
			}
		}
	}
}

// sameSubnets reports whether two lists of addresses are in the same subnets, in the same order.
func sameSubnets(a, b []netip.Prefix) bool {
	return slices.EqualFunc(a, b, func(a, b netip.Prefix) bool { return a.Masked() == b.Masked() })
}
