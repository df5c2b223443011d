package topology

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Options are what all shapes have in common.
type Options struct {
	// Rails is how many NICs a host has, each on a fabric of its own that looks
	// like the others; 1 if 0.
	Rails int
	// Link is every cable.
	Link Link
	// Links are exceptions, by a pattern of ports as Match takes it. What is zero
	// in one is as in Link. Where several patterns speak of a cable, the most
	// exact one has the last word: "host1/rdma0" over "host1" over "host*".
	Links map[string]Link
}

// Pair is two hosts back to back.
func Pair(o Options) (Topology, error) {
	d := newDrawing(2, o)
	for rail := range d.rails {
		d.flatRail(rail)
		d.join(d.nic(0, rail), d.nic(1, rail))
	}
	return d.finish("pair")
}

// Star is hosts around one switch, in one subnet. Each rail has its own switch.
func Star(hosts int, o Options) (Topology, error) {
	d := newDrawing(hosts, o)
	for rail := range d.rails {
		d.flatRail(rail)
		sw := d.newSwitch("switch", 0, rail, 1, false)
		for h := range d.t.Hosts {
			d.join(d.nic(h, rail), sw.port())
		}
	}
	return d.finish("star")
}

// FatTree is hosts on leaves, and every leaf on every spine. Leaves and spines
// are routers: the hosts of a leaf share a subnet whose gateway is the leaf, and
// the ways from leaf to leaf over the spines cost the same. Hosts are dealt out
// in blocks as even as can be: host0, host1, … to leaf0.
func FatTree(leaves, spines, hosts int, o Options) (Topology, error) {
	d := newDrawing(hosts, o)
	switch {
	case leaves < 1 || leaves > maxLeaves:
		d.refuse("%d leaves: from 1 to %d can be had", leaves, maxLeaves)
	case spines < 1 || leaves*spines > maxTrunks:
		d.refuse("%d spines: from 1 to %d can be had with %d leaves", spines, maxTrunks/leaves, leaves)
	case hosts < leaves:
		d.refuse("%d hosts on %d leaves: each leaf needs one", hosts, leaves)
	case (hosts+leaves-1)/leaves > maxHostsPerLeaf:
		d.refuse("%d hosts on %d leaves: a leaf takes %d at most, so use %d leaves",
			hosts, leaves, maxHostsPerLeaf, (hosts+maxHostsPerLeaf-1)/maxHostsPerLeaf)
	}
	for rail := range d.rails {
		d.treeRail(rail, leaves, spines)
	}
	return d.finish("fat tree")
}

// drawing is a topology in the making. Its first error sticks, and nothing is
// drawn after it.
type drawing struct {
	t     Topology
	o     Options
	rails int
	err   error
}

func newDrawing(hosts int, o Options) *drawing {
	d := &drawing{o: o, rails: max(o.Rails, 1)}
	if o.Rails < 0 || o.Rails > maxRails {
		d.refuse("%d rails: from 1 to %d can be had", o.Rails, maxRails)
		return d
	}
	if hosts < 1 || hosts > maxHosts {
		d.refuse("%d hosts: from 1 to %d can be had", hosts, maxHosts)
		return d
	}
	d.t.Hosts = make([]Host, hosts)
	for i := range d.t.Hosts {
		d.t.Hosts[i] = Host{Name: fmt.Sprintf("host%d", i), NICs: make([]NIC, d.rails)}
	}
	return d
}

func (d *drawing) refuse(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf(format, args...)
	}
	d.rails, d.t = 0, Topology{}
}

func (d *drawing) flatRail(rail int) {
	for i := range d.t.Hosts {
		d.t.Hosts[i].NICs[rail] = NIC{Name: fmt.Sprintf("rdma%d", rail), Rail: rail, Addrs: flatAddrs(rail, i)}
	}
}

func (d *drawing) treeRail(rail, leaves, spines int) {
	hosts := len(d.t.Hosts)
	leaf, spine := make([]*drawnSwitch, leaves), make([]*drawnSwitch, spines)
	for i := range leaf {
		leaf[i] = d.newSwitch("leaf", i, rail, 1, true)
	}
	for i := range spine {
		spine[i] = d.newSwitch("spine", i, rail, 2, true)
	}
	for h := range d.t.Hosts {
		l := h * leaves / hosts
		first := (l*hosts + leaves - 1) / leaves // of the leaf's hosts
		gateway := leaf[l].port()
		gateway.Addrs = leafAddrs(rail, l, gatewayHost)
		d.t.Hosts[h].NICs[rail] = NIC{
			Name: fmt.Sprintf("rdma%d", rail), Rail: rail,
			Addrs: leafAddrs(rail, l, h-first+1), Gateways: addrsOf(gateway.Addrs),
		}
		d.join(d.nic(h, rail), gateway)
	}
	for l := range leaf {
		for s := range spine {
			a, b := leaf[l].port(), spine[s].port()
			a.Addrs, b.Addrs = trunkAddrs(rail, l, s, spines)
			d.join(a, b)
		}
	}
}

func (d *drawing) nic(host, rail int) Port {
	h := d.t.Hosts[host]
	return Port{Node: h.Name, NIC: h.NICs[rail].Name}
}

func (d *drawing) join(a, b Port) {
	d.t.Cables = append(d.t.Cables, Cable{A: a, B: b, Link: d.o.Link})
}

// drawnSwitch numbers the ports of a switch.
type drawnSwitch struct {
	name  string
	ports int
}

func (d *drawing) newSwitch(kind string, i, rail, tier int, routed bool) *drawnSwitch {
	name := fmt.Sprintf("%s%d", kind, i)
	if d.rails > 1 {
		name += fmt.Sprintf("-rail%d", rail)
	}
	d.t.Switches = append(d.t.Switches, Switch{Name: name, Rail: rail, Routed: routed, Tier: tier})
	return &drawnSwitch{name: name}
}

func (s *drawnSwitch) port() Port {
	s.ports++
	return Port{Node: s.name, Num: s.ports - 1}
}

func (d *drawing) finish(shape string) (Topology, error) {
	if d.err != nil {
		return Topology{}, fmt.Errorf("%s: %w", shape, d.err)
	}
	if err := d.exceptions(); err != nil {
		return Topology{}, fmt.Errorf("%s: %w", shape, err)
	}
	if err := d.t.Validate(); err != nil {
		return Topology{}, fmt.Errorf("%s: %w", shape, err)
	}
	return d.t, nil
}

func (d *drawing) exceptions() error {
	patterns := make([]string, 0, len(d.o.Links))
	for p := range d.o.Links {
		patterns = append(patterns, p)
	}
	slices.SortFunc(patterns, func(a, b string) int {
		return cmp.Or(cmp.Compare(exactness(a), exactness(b)), cmp.Compare(a, b))
	})
	for _, p := range patterns {
		ports, err := d.t.Match(p)
		if err != nil {
			return fmt.Errorf("link of %q: %w", p, err)
		}
		for i := range d.t.Cables {
			c := &d.t.Cables[i]
			if slices.ContainsFunc(ports, func(q Port) bool { return q.Same(c.A) || q.Same(c.B) }) {
				c.Link = c.Link.with(d.o.Links[p])
			}
		}
	}
	return nil
}

func exactness(pattern string) int {
	n := 0
	if !strings.ContainsAny(pattern, "*?[") {
		n += 2
	}
	if strings.Contains(pattern, "/") {
		n++
	}
	return n
}

// with is l with what x sets.
func (l Link) with(x Link) Link {
	l.MTU = cmp.Or(x.MTU, l.MTU)
	l.RateBps = cmp.Or(x.RateBps, l.RateBps)
	l.Latency = cmp.Or(x.Latency, l.Latency)
	l.QueueBytes = cmp.Or(x.QueueBytes, l.QueueBytes)
	l.ECN = cmp.Or(x.ECN, l.ECN)
	return l
}
