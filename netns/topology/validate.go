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

// Validate returns all errors of a topology, one per line. A valid topology can
// be built.
func (t Topology) Validate() error {
	v := &validator{t: t, x: t.index(), seen: map[string]bool{}, ends: map[string]bool{}}
	v.nodes()
	v.cables()
	if v.errs == nil { // otherwise the remaining checks would repeat errors
		v.addresses()
		v.segments()
	}
	return errors.Join(v.errs...)
}

// validator collects the errors of a topology.
type validator struct {
	t    Topology
	x    index
	seen map[string]bool // names of nodes
	ends map[string]bool // ports that have a cable
	errs []error
}

func (v *validator) wrong(format string, args ...any) {
	v.errs = append(v.errs, fmt.Errorf(format, args...))
}

// nodes checks the names of hosts, NICs and switches.
func (v *validator) nodes() {
	if len(v.t.Hosts) == 0 {
		v.wrong("there is no host")
	}
	for _, h := range v.t.Hosts {
		v.name("host", h.Name)
		nics := map[string]bool{}
		for _, n := range h.NICs {
			place := h.Name + "/" + n.Name
			switch {
			case n.Name == "" || strings.ContainsAny(n.Name, forbiddenInNames):
				v.wrong("%s: NIC name %q: it must not be empty nor hold any of %s", h.Name, n.Name, forbiddenInNames)
			case nics[n.Name]:
				v.wrong("%s: there are two NICs of this name", place)
			}
			nics[n.Name] = true
			if len(n.Addrs) == 0 {
				v.wrong("%s: it has no address", place)
			}
		}
	}
	for _, s := range v.t.Switches {
		v.name("switch", s.Name)
	}
}

const forbiddenInNames = "/*?[] \t\n"

func (v *validator) name(kind, name string) {
	switch {
	case name == "" || strings.ContainsAny(name, forbiddenInNames):
		v.wrong("%s name %q: it must not be empty nor hold any of %q", kind, name, forbiddenInNames)
	case v.seen[name]:
		v.wrong("%s: there are two nodes of this name", name)
	}
	v.seen[name] = true
}

// cables checks that every cable has two existing ports, and every NIC a cable.
func (v *validator) cables() {
	for _, c := range v.t.Cables {
		if c.A.Same(c.B) {
			v.wrong("cable %v: both ends are one port", c)
			continue
		}
		v.end(c, c.A)
		v.end(c, c.B)
		v.link(c)
	}
	for _, h := range v.t.Hosts {
		for _, n := range h.NICs {
			if p := (Port{Node: h.Name, NIC: n.Name}); !v.ends[p.String()] {
				v.wrong("%v: no cable is plugged in", p)
			}
		}
	}
}

// end checks one end of a cable.
func (v *validator) end(c Cable, p Port) {
	nics, isHost := v.x.hosts[p.Node]
	sw := v.x.switches[p.Node]
	switch {
	case !isHost && sw == nil:
		v.wrong("cable %v: there is no node %s", c, p.Node)
	case isHost && nics[p.NIC] == nil:
		v.wrong("cable %v: %s has no NIC %q", c, p.Node, p.NIC)
	case isHost && (p.Num != 0 || p.Addrs != nil):
		v.wrong("cable %v: %s is a host: its ports have no number, and their addresses are the NIC's", c, p.Node)
	case sw != nil && (p.NIC != "" || p.Num < 0):
		v.wrong("cable %v: %s is a switch: its ports have numbers from 0", c, p.Node)
	case sw != nil && sw.Routed != (len(p.Addrs) > 0):
		v.wrong("cable %v: ports have addresses on routed switches, and on no others", c)
	case v.ends[p.String()]:
		v.wrong("%v: two cables are plugged in", p)
	}
	v.ends[p.String()] = true
}

func (v *validator) link(c Cable) {
	l := c.Link
	if l.MTU != 0 && (l.MTU < MinMTU || l.MTU > MaxMTU) {
		v.wrong("cable %v: MTU %d: from %d (which IPv6 needs) to %d can be had", c, l.MTU, MinMTU, MaxMTU)
	}
	if l.Latency < 0 || l.QueueBytes < 0 {
		v.wrong("cable %v: latency %v, queue of %d bytes: neither can be negative", c, l.Latency, l.QueueBytes)
	}
	if e := l.ECN; e.MinBytes < 0 || e.MaxBytes < e.MinBytes || e.MaxPPM > 1e6 {
		v.wrong("cable %v: ECN from %d to %d bytes, %d ppm: it needs 0 ≤ min ≤ max, and 1000000 ppm at most",
			c, e.MinBytes, e.MaxBytes, e.MaxPPM)
	}
}

// addresses checks for duplicate addresses. A routed switch may have one
// address at several ports, which it bridges.
func (v *validator) addresses() {
	owner := map[netip.Addr]Port{}
	for _, p := range v.t.Ports() {
		for _, a := range v.x.addrs(p) {
			old, taken := owner[a.Addr()]
			if taken && (p.NIC != "" || old.Node != p.Node) {
				v.wrong("%v: address %v is that of %v too", p, a.Addr(), old)
			}
			owner[a.Addr()] = p
		}
	}
}

// segments checks that no segment has a loop, and each segment.
func (v *validator) segments() {
	if _, loop := v.t.broadcastDomains(v.x); loop != nil {
		v.wrong("cable %v: it closes a loop of switches, in which frames would go round for ever", *loop)
	}
	for _, s := range v.t.Segments() {
		v.segment(s)
	}
}

// segment checks that all ports agree on the subnets and that gateways are in
// them.
func (v *validator) segment(s Segment) {
	if len(s.Ports) == 0 {
		return
	}
	first := s.Ports[0]
	here := map[netip.Addr]bool{} // addresses of routers
	for _, p := range s.Ports {
		if !sameSubnets(v.x.addrs(first), v.x.addrs(p)) {
			v.wrong("%v and %v: they are cabled to one segment, but the subnets %v and %v differ",
				first, p, v.x.addrs(first), v.x.addrs(p))
		}
		if a, b := v.x.rail(first), v.x.rail(p); a != b {
			v.wrong("%v and %v: they are cabled to one segment, but the rails %d and %d differ", first, p, a, b)
		}
		for _, a := range p.Addrs {
			here[a.Addr()] = true
		}
	}
	for _, p := range s.Ports {
		n := v.x.hosts[p.Node][p.NIC]
		if n == nil {
			continue
		}
		for _, g := range n.Gateways {
			if !here[g] {
				v.wrong("%v: gateway %v: no switch in its segment has this address", p, g)
			}
		}
	}
}

func sameSubnets(a, b []netip.Prefix) bool {
	return slices.EqualFunc(a, b, func(a, b netip.Prefix) bool { return a.Masked() == b.Masked() })
}
