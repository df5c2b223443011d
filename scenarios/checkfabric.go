package scenarios

import "fmt"

// What fabrics may come to. The rest is for package topology to say.
const (
	maxPorts  = 2048 // NICs of all hosts
	maxTrunks = 1024 // cables between switches
)

func (c *checker) checkFabric() {
	const at = "fabric"
	f := &c.s.Fabric
	if c.bad(at) {
		return
	}
	before := len(c.errs)
	if f.Kind == Pair && f.HostCount() != f.Hosts && f.Hosts != 0 {
		c.fail(at+".hosts", "%d hosts: a pair has two; a star takes more", f.Hosts)
	}
	if f.Kind != Pair {
		c.need(at, fmt.Sprintf("expected the number of hosts of the %s", f.Kind), "hosts")
	}
	if f.Kind == FatTree {
		c.need(at, "expected the number of switches next to the hosts", "leaves")
		c.need(at, "expected the number of switches above the leaves", "spines")
	} else {
		c.refuse(at, "only a fat-tree has them", "leaves", "spines")
	}
	if n := f.Hosts * f.RailCount(); n > maxPorts {
		c.fail(at+".hosts", "%d hosts with %d NICs each: at most %d NICs in all", f.Hosts, f.RailCount(), maxPorts)
	}
	if n := f.Leaves * f.Spines * f.RailCount(); n > maxTrunks {
		c.fail(at+".spines", "%d cables between leaves and spines: at most %d", n, maxTrunks)
	}
	c.link(at+".link", &f.Link)
	for pattern, l := range f.Links {
		c.link(join(at+".links", pattern), &l)
	}
	if len(c.errs) > before {
		return
	}
	c.draw()
}

// draw makes the fabric that patterns are held against: at first without the
// exceptions, whose own patterns may be wrong.
func (c *checker) draw() {
	f := &c.s.Fabric
	t, err := f.draw(nil)
	if err != nil {
		c.fail("fabric", "%w", err)
		return
	}
	c.fabric = &t
	for _, h := range t.Hosts {
		c.hosts = append(c.hosts, h.Name)
	}
	before := len(c.errs)
	for pattern := range f.Links {
		c.port(join("fabric.links", pattern), pattern)
	}
	if len(c.errs) > before || len(f.Links) == 0 {
		return
	}
	if _, err := f.draw(f.Links); err != nil {
		c.fail("fabric.links", "%w", err)
	}
}

func (c *checker) link(key string, l *Link) {
	if c.s.Fabric.Kind == Pair {
		c.refuse(key, "two hosts back to back have no switch with a queue", "queue", "ecn")
	}
	// A switch that sends on as fast as it receives has no queue, and a tier without
	// a rate of its own would pass over these keys in silence.
	if l.Rate == 0 && c.s.Fabric.Link.Rate == 0 && c.s.Fabric.Kind != Pair {
		c.refuse(key, "without rate nothing ever queues", "queue", "ecn")
	}
	if !c.given(key + ".ecn") {
		return
	}
	if l.ECN.Max < l.ECN.Min {
		c.fail(key+".ecn.max", "%s is less than min, %s", l.ECN.Max, l.ECN.Min)
	}
	if l.ECN.Share == 0 {
		c.fail(key+".ecn.share", "0%% marks nothing: leave ecn out")
	}
}

func (c *checker) checkNIC() {
	n := &c.s.NIC
	if c.bad("nic") {
		return
	}
	if len(n.Quirks) == 0 {
		c.refuse("nic", "it says which hosts have the quirks, and there are none", "on")
	}
	seen := map[string]bool{}
	for i, q := range n.Quirks {
		if seen[q] {
			c.fail(fmt.Sprintf("nic.quirks[%d]", i), "%s is there already", shown(q))
		}
		seen[q] = true
	}
	c.hostsAt("nic.on", n.On)
}
