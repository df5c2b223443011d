package scenarios

import "fmt"

// Limits of fabrics. Package topology checks the rest.
const (
	maxPorts  = 2048 // NICs of all hosts
	maxTrunks = 1024 // cables between switches
)

func (c *checker) checkFabric() {
	const at = "fabric"
	f := &c.s.Fabric
	if c.unreadable(at) {
		return
	}
	before := len(c.errs)
	if f.Kind == Pair && f.HostCount() != f.Hosts && f.Hosts != 0 {
		c.fail(at+".hosts", "%d hosts: a pair has two; a star takes more", f.Hosts)
	}
	if f.Kind != Pair {
		c.requireKeys(at, fmt.Sprintf("expected the number of hosts of the %s", f.Kind), "hosts")
	}
	if f.Kind == FatTree {
		c.requireKeys(at, "expected the number of switches next to the hosts", "leaves")
		c.requireKeys(at, "expected the number of switches above the leaves", "spines")
	} else {
		c.rejectKeys(at, "only a fat-tree has them", "leaves", "spines")
	}
	if n := f.Hosts * f.RailCount(); n > maxPorts {
		c.fail(at+".hosts", "%d hosts with %d NICs each: at most %d NICs in all", f.Hosts, f.RailCount(), maxPorts)
	}
	if n := f.Leaves * f.Spines * f.RailCount(); n > maxTrunks {
		c.fail(at+".spines", "%d cables between leaves and spines: at most %d", n, maxTrunks)
	}
	c.checkLink(at+".link", &f.Link)
	for pattern, l := range f.Links {
		c.checkLink(join(at+".links", pattern), &l)
	}
	if len(c.errs) > before {
		return
	}
	c.buildTopology()
}

// buildTopology builds the fabric for matching patterns, first without exceptions, whose
// patterns may be wrong.
func (c *checker) buildTopology() {
	f := &c.s.Fabric
	t, err := f.build(nil)
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
		c.checkPort(join("fabric.links", pattern), pattern)
	}
	if len(c.errs) > before || len(f.Links) == 0 {
		return
	}
	if _, err := f.build(f.Links); err != nil {
		c.fail("fabric.links", "%w", err)
	}
}

func (c *checker) checkLink(key string, l *Link) {
	if c.s.Fabric.Kind == Pair {
		c.rejectKeys(key, "two hosts back to back have no switch with a queue", "queue", "ecn")
	}
	// Without a rate a switch sends as fast as it receives, and has no queue.
	if l.Rate == 0 && c.s.Fabric.Link.Rate == 0 && c.s.Fabric.Kind != Pair {
		c.rejectKeys(key, "without rate nothing ever queues", "queue", "ecn")
	}
	if !c.has(key + ".ecn") {
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
	if c.unreadable("nic") {
		return
	}
	if len(n.Defects) == 0 {
		c.rejectKeys("nic", "there are no defects", "on")
	}
	seen := map[string]bool{}
	for i, q := range n.Defects {
		if seen[q] {
			c.fail(fmt.Sprintf("nic.defects[%d]", i), "%s is listed twice", quoteShort(q))
		}
		seen[q] = true
	}
	c.checkHosts("nic.on", n.On)
}
