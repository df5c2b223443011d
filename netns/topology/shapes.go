package topology

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Options are common to all shapes.
type Options struct {
	// Rails is the number of NICs per host, each on its own identical fabric; 0
	// means 1.
	Rails int
	// Link configures every cable.
	Link Link
	// Links overrides Link for the cables of the ports that match a pattern
	// (see Match); zero fields are as in Link. The most specific pattern wins:
	// "host1/rdma0" over "host1" over "host*".
	Links map[string]Link
}

// Pair returns two hosts whose NICs are connected by one cable per rail.
func Pair(o Options) (Topology, error) {
	d := newBuilder(2, o)
	for rail := range d.rails {
		d.setNICsInOneSubnet(rail)
		d.addCable(d.nicPort(0, rail), d.nicPort(1, rail))
	}
	return d.finish("pair")
}

// Star returns hosts on one switch per rail. Each rail is one subnet.
func Star(hosts int, o Options) (Topology, error) {
	d := newBuilder(hosts, o)
	for rail := range d.rails {
		d.setNICsInOneSubnet(rail)
		sw := d.addSwitch(Switch{Name: "switch0", Rail: rail, Tier: 1})
		for h := range d.t.Hosts {
			d.addCable(d.nicPort(h, rail), sw.newPort())
		}
	}
	return d.finish("star")
}

// FatTree returns hosts on leaves, and every leaf connected to every spine.
// Leaves and spines are routers: the hosts of a leaf share a subnet whose
// gateway is the leaf, and all paths between leaves have equal cost. Hosts are
// assigned to leaves in blocks of nearly equal size: host0, host1, … to leaf0.
func FatTree(leaves, spines, hosts int, o Options) (Topology, error) {
	d := newBuilder(hosts, o)
	switch {
	case leaves < 1 || leaves > maxLeaves:
		d.fail("%d leaves: must be 1 to %d", leaves, maxLeaves)
	case spines < 1 || leaves*spines > maxTrunks:
		d.fail("%d spines: must be 1 to %d with %d leaves", spines, maxTrunks/leaves, leaves)
	case hosts < leaves:
		d.fail("%d hosts on %d leaves: each leaf needs a host", hosts, leaves)
	case (hosts+leaves-1)/leaves > maxHostsPerLeaf:
		d.fail("%d hosts on %d leaves: a leaf takes %d at most, so use %d leaves",
			hosts, leaves, maxHostsPerLeaf, (hosts+maxHostsPerLeaf-1)/maxHostsPerLeaf)
	}
	for rail := range d.rails {
		d.addTree(rail, leaves, spines)
	}
	return d.finish("fat tree")
}

// builder builds a topology. After its first error it adds nothing more.
type builder struct {
	t     Topology
	o     Options
	rails int
	err   error
}

// newBuilder returns a builder with hosts whose NICs have no addresses yet.
func newBuilder(hosts int, o Options) *builder {
	d := &builder{o: o, rails: max(o.Rails, 1)}
	if o.Rails < 0 || o.Rails > maxRails {
		d.fail("%d rails: must be 1 to %d", o.Rails, maxRails)
		return d
	}
	if hosts < 1 || hosts > maxHosts {
		d.fail("%d hosts: must be 1 to %d", hosts, maxHosts)
		return d
	}
	d.t.Hosts = make([]Host, hosts)
	for i := range d.t.Hosts {
		d.t.Hosts[i] = Host{Name: fmt.Sprintf("host%d", i), NICs: make([]NIC, d.rails)}
	}
	return d
}

// fail records the first error and empties the topology, so that nothing more is added.
func (d *builder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf(format, args...)
	}
	d.rails, d.t = 0, Topology{}
}

// setNICsInOneSubnet sets the NICs of a rail. Their addresses are in one subnet.
func (d *builder) setNICsInOneSubnet(rail int) {
	for i := range d.t.Hosts {
		d.t.Hosts[i].NICs[rail] = NIC{Name: fmt.Sprintf("rdma%d", rail), Rail: rail, Addrs: flatAddrs(rail, i)}
	}
}

// addTree adds one rail of a fat tree: leaves, spines and cables. It also sets the hosts' NICs on
// that rail. The gateway of a NIC is its leaf.
func (d *builder) addTree(rail, leaves, spines int) {
	hosts := len(d.t.Hosts)
	leaf, spine := make([]*switchBuilder, leaves), make([]*switchBuilder, spines)
	for i := range leaf {
		leaf[i] = d.addSwitch(Switch{Name: fmt.Sprintf("leaf%d", i), Rail: rail, Tier: 1, Routed: true})
	}
	for i := range spine {
		spine[i] = d.addSwitch(Switch{Name: fmt.Sprintf("spine%d", i), Rail: rail, Tier: 2, Routed: true})
	}
	for h := range d.t.Hosts {
		l := h * leaves / hosts
		first := (l*hosts + leaves - 1) / leaves // first host of the leaf
		gateway := leaf[l].newPort()
		gateway.Addrs = leafAddrs(rail, l, gatewayHost)
		d.t.Hosts[h].NICs[rail] = NIC{
			Name: fmt.Sprintf("rdma%d", rail), Rail: rail,
			Addrs: leafAddrs(rail, l, h-first+1), Gateways: withoutLengths(gateway.Addrs),
		}
		d.addCable(d.nicPort(h, rail), gateway)
	}
	for l := range leaf {
		for s := range spine {
			a, b := leaf[l].newPort(), spine[s].newPort()
			a.Addrs, b.Addrs = trunkAddrs(rail, l, s, spines)
			d.addCable(a, b)
		}
	}
}

// nicPort returns the port of a host's NIC on a rail.
func (d *builder) nicPort(host, rail int) Port {
	h := d.t.Hosts[host]
	return Port{Node: h.Name, NIC: h.NICs[rail].Name}
}

func (d *builder) addCable(a, b Port) {
	d.t.Cables = append(d.t.Cables, Cable{A: a, B: b, Link: d.o.Link})
}

// switchBuilder numbers the ports of a switch.
type switchBuilder struct {
	name  string
	ports int
}

// addSwitch adds a switch. With several rails, its name ends with the name of the rail.
func (d *builder) addSwitch(s Switch) *switchBuilder {
	if d.rails > 1 {
		s.Name += fmt.Sprintf("-rail%d", s.Rail)
	}
	d.t.Switches = append(d.t.Switches, s)
	return &switchBuilder{name: s.Name}
}

// newPort returns the next port of the switch, numbered from 0.
func (s *switchBuilder) newPort() Port {
	s.ports++
	return Port{Node: s.name, Num: s.ports - 1}
}

// finish applies Options.Links and validates the topology. Error messages begin with shape.
func (d *builder) finish(shape string) (Topology, error) {
	err := d.err
	if err == nil {
		err = d.applyLinkOverrides()
	}
	if err == nil {
		err = d.t.Validate()
	}
	if err != nil {
		return Topology{}, fmt.Errorf("%s: %w", shape, err)
	}
	return d.t, nil
}

// applyLinkOverrides applies Options.Links, the most specific pattern last.
func (d *builder) applyLinkOverrides() error {
	patterns := slices.SortedFunc(maps.Keys(d.o.Links), func(a, b string) int {
		return cmp.Or(cmp.Compare(specificity(a), specificity(b)), cmp.Compare(a, b))
	})
	for _, pattern := range patterns {
		ports, err := d.t.Match(pattern)
		if err != nil {
			return fmt.Errorf("links of the ports %q: %w", pattern, err)
		}
		for i := range d.t.Cables {
			c := &d.t.Cables[i]
			if slices.ContainsFunc(ports, func(p Port) bool { return p.Same(c.A) || p.Same(c.B) }) {
				c.Link = c.Link.with(d.o.Links[pattern])
			}
		}
	}
	return nil
}

// specificity returns the rank of a port pattern, higher for a more specific one. A pattern without
// wildcards ranks above all others ("host1" above "host*/rdma0"), then one with a port ranks above
// one without ("host*/rdma0" above "host*").
func specificity(pattern string) int {
	rank := 0
	if !strings.ContainsAny(pattern, "*?[") {
		rank += 2
	}
	if strings.Contains(pattern, "/") {
		rank++
	}
	return rank
}

// with returns l, with its fields replaced by the nonzero fields of x.
func (l Link) with(x Link) Link {
	l.MTU = cmp.Or(x.MTU, l.MTU)
	l.RateBps = cmp.Or(x.RateBps, l.RateBps)
	l.Latency = cmp.Or(x.Latency, l.Latency)
	l.QueueBytes = cmp.Or(x.QueueBytes, l.QueueBytes)
	l.ECN = cmp.Or(x.ECN, l.ECN)
	return l
}
