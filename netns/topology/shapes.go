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
	b := newBuilder(2, o)
	for rail := range b.rails {
		b.setNICsInOneSubnet(rail)
		b.addCable(b.nicPort(0, rail), b.nicPort(1, rail))
	}
	return b.finish("pair")
}

// Star returns hosts on one switch per rail. Each rail is one subnet.
func Star(hosts int, o Options) (Topology, error) {
	b := newBuilder(hosts, o)
	for rail := range b.rails {
		b.setNICsInOneSubnet(rail)
		sw := b.addSwitch(Switch{Name: "switch0", Rail: rail, Tier: 1})
		for h := range b.t.Hosts {
			b.addCable(b.nicPort(h, rail), sw.newPort())
		}
	}
	return b.finish("star")
}

// FatTree returns hosts on leaves, and every leaf connected to every spine.
// Leaves and spines are routers: the hosts of a leaf share a subnet whose
// gateway is the leaf, and all paths between leaves have equal cost. Hosts are
// assigned to leaves in blocks of nearly equal size: host0, host1, … to leaf0.
func FatTree(leaves, spines, hosts int, o Options) (Topology, error) {
	b := newBuilder(hosts, o)
	switch {
	case leaves < 1 || leaves > maxLeaves:
		b.fail("%d leaves: must be 1 to %d", leaves, maxLeaves)
	case spines < 1 || leaves*spines > maxTrunks:
		b.fail("%d spines: must be 1 to %d with %d leaves", spines, maxTrunks/leaves, leaves)
	case hosts < leaves:
		b.fail("%d hosts on %d leaves: each leaf needs a host", hosts, leaves)
	case (hosts+leaves-1)/leaves > maxHostsPerLeaf:
		b.fail("%d hosts on %d leaves: a leaf takes %d at most, so use %d leaves",
			hosts, leaves, maxHostsPerLeaf, (hosts+maxHostsPerLeaf-1)/maxHostsPerLeaf)
	}
	for rail := range b.rails {
		b.addTree(rail, leaves, spines)
	}
	return b.finish("fat tree")
}

// builder builds a topology. After its first error it adds nothing more.
type builder struct {
	t     Topology
	o     Options
	rails int
	err   error
}

// newBuilder returns a builder with hosts whose NICs have no addresses yet. Without o.Rails there
// is one rail.
func newBuilder(hosts int, o Options) *builder {
	b := &builder{o: o, rails: max(o.Rails, 1)}
	if o.Rails < 0 || o.Rails > maxRails {
		b.fail("%d rails: must be 1 to %d", o.Rails, maxRails)
		return b
	}
	if hosts < 1 || hosts > maxHosts {
		b.fail("%d hosts: must be 1 to %d", hosts, maxHosts)
		return b
	}
	b.t.Hosts = make([]Host, hosts)
	for i := range b.t.Hosts {
		b.t.Hosts[i] = Host{Name: fmt.Sprintf("host%d", i), NICs: make([]NIC, b.rails)}
	}
	return b
}

// fail records the first error and empties the topology, so that nothing more is added.
func (b *builder) fail(format string, args ...any) {
	if b.err == nil {
		b.err = fmt.Errorf(format, args...)
	}
	b.rails, b.t = 0, Topology{}
}

// setNICsInOneSubnet sets the NICs of a rail. Their addresses are in one subnet.
func (b *builder) setNICsInOneSubnet(rail int) {
	for i := range b.t.Hosts {
		b.t.Hosts[i].NICs[rail] = NIC{Name: fmt.Sprintf("rdma%d", rail), Rail: rail, Addrs: flatAddrs(rail, i)}
	}
}

// addTree adds one rail of a fat tree: leaves, spines and cables. It also sets the hosts' NICs on
// that rail. The gateway of a NIC is its leaf, which has one address at all ports to its hosts.
func (b *builder) addTree(rail, leaves, spines int) {
	hosts := len(b.t.Hosts)
	leaf, spine := make([]*switchBuilder, leaves), make([]*switchBuilder, spines)
	for i := range leaf {
		leaf[i] = b.addSwitch(Switch{Name: fmt.Sprintf("leaf%d", i), Rail: rail, Tier: 1, Routed: true})
	}
	for i := range spine {
		spine[i] = b.addSwitch(Switch{Name: fmt.Sprintf("spine%d", i), Rail: rail, Tier: 2, Routed: true})
	}
	for h := range b.t.Hosts {
		l := h * leaves / hosts                  // number of the host's leaf
		first := (l*hosts + leaves - 1) / leaves // first host of the leaf
		gateway := leaf[l].newPort()
		gateway.Addrs = leafAddrs(rail, l, gatewayHost)
		b.t.Hosts[h].NICs[rail] = NIC{
			Name: fmt.Sprintf("rdma%d", rail), Rail: rail,
			Addrs: leafAddrs(rail, l, h-first+1), Gateways: withoutLengths(gateway.Addrs),
		}
		b.addCable(b.nicPort(h, rail), gateway)
	}
	for l := range leaf {
		for s := range spine {
			atLeaf, atSpine := leaf[l].newPort(), spine[s].newPort()
			atLeaf.Addrs, atSpine.Addrs = trunkAddrs(rail, l, s, spines)
			b.addCable(atLeaf, atSpine)
		}
	}
}

// nicPort returns the port of a host's NIC on a rail.
func (b *builder) nicPort(host, rail int) Port {
	h := b.t.Hosts[host]
	return Port{Node: h.Name, NIC: h.NICs[rail].Name}
}

func (b *builder) addCable(from, to Port) {
	b.t.Cables = append(b.t.Cables, Cable{A: from, B: to, Link: b.o.Link})
}

// switchBuilder numbers the ports of a switch.
type switchBuilder struct {
	name  string
	ports int
}

// addSwitch adds a switch. With several rails, its name ends with the name of the rail.
func (b *builder) addSwitch(s Switch) *switchBuilder {
	if b.rails > 1 {
		s.Name += fmt.Sprintf("-rail%d", s.Rail)
	}
	b.t.Switches = append(b.t.Switches, s)
	return &switchBuilder{name: s.Name}
}

// newPort returns the next port of the switch, numbered from 0.
func (s *switchBuilder) newPort() Port {
	s.ports++
	return Port{Node: s.name, Num: s.ports - 1}
}

// finish applies Options.Links and validates the topology. Error messages begin with shape.
func (b *builder) finish(shape string) (Topology, error) {
	err := b.err
	if err == nil {
		err = b.applyLinkOverrides()
	}
	if err == nil {
		err = b.t.Validate()
	}
	if err != nil {
		return Topology{}, fmt.Errorf("%s: %w", shape, err)
	}
	return b.t, nil
}

// applyLinkOverrides applies Options.Links, the most specific pattern last.
func (b *builder) applyLinkOverrides() error {
	patterns := slices.SortedFunc(maps.Keys(b.o.Links), func(p, q string) int {
		return cmp.Or(cmp.Compare(specificity(p), specificity(q)), cmp.Compare(p, q))
	})
	for _, pattern := range patterns {
		ports, err := b.t.Match(pattern)
		if err != nil {
			return fmt.Errorf("links of the ports %q: %w", pattern, err)
		}
		for i := range b.t.Cables {
			c := &b.t.Cables[i]
			if slices.ContainsFunc(ports, func(p Port) bool { return p.Same(c.A) || p.Same(c.B) }) {
				c.Link = c.Link.with(b.o.Links[pattern])
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

// with returns l, with its fields replaced by the nonzero fields of override.
func (l Link) with(override Link) Link {
	l.MTU = cmp.Or(override.MTU, l.MTU)
	l.RateBps = cmp.Or(override.RateBps, l.RateBps)
	l.Latency = cmp.Or(override.Latency, l.Latency)
	l.QueueBytes = cmp.Or(override.QueueBytes, l.QueueBytes)
	l.ECN = cmp.Or(override.ECN, l.ECN)
	return l
}
