package scenarios

import (
	"fmt"
	"path"
	"slices"

	"github.com/fabrictest/fabrictest/netns/topology"
)

// maxPatterns limits the host and port patterns of a file: each is matched against every port.
const maxPatterns = 256

// checker reports values that are readable but contradict each other, or name hosts and
// ports that the fabric does not have.
type checker struct {
	s          *Scenario
	unreadable func(key string) bool // a value at or below key could not be decoded
	errs       Errors

	fabric   *topology.Topology // nil if it could not be built
	hosts    []string
	patterns int
}

// fail records an error about a key, a path such as "impair[0].loss".
func (c *checker) fail(key, format string, args ...any) {
	c.errs = append(c.errs, c.s.source.errorAt(key, fmt.Errorf(format, args...)))
}

// has reports whether the file has a key.
func (c *checker) has(key string) bool {
	_, ok := c.s.source.positions[key]
	return ok
}

// rejectKeys records an error, with the reason why, for each of the keys that a section has.
func (c *checker) rejectKeys(section, why string, keys ...string) {
	for _, k := range keys {
		if key := join(section, k); c.has(key) {
			c.fail(key, "%s: leave it out", why)
		}
	}
}

// requireKeys records an error, with the reason why, for each of the keys that a section lacks.
// It reports whether all are present.
func (c *checker) requireKeys(section, why string, keys ...string) bool {
	all := true
	for _, k := range keys {
		if key := join(section, k); !c.has(key) {
			c.fail(key, "is missing: %s", why)
			all = false
		}
	}
	return all
}

// checkAll checks every section of the scenario.
func (c *checker) checkAll() {
	checkUnique(c, "tags", c.s.Tags)
	checkUnique(c, "tiers", c.s.Tiers)
	if c.has("experiment") {
		c.checkExperiment()
		return
	}
	c.requireKeys("", "expected fabric and workload, or experiment", "fabric", "workload")
	c.checkFabric()
	c.checkNIC()
	checkEntries(c, "impair", c.s.Impair, c.checkImpairment)
	checkEntries(c, "events", c.s.Events, c.checkEvent)
	checkEntries(c, "faults", c.s.Faults, c.checkFault)
	c.checkWorkload()
	c.checkExpect()
}

// checkEntries calls check for each entry of a list that could be decoded.
func checkEntries[T any](c *checker, list string, entries []T, check func(key string, entry *T)) {
	for i := range entries {
		if key := fmt.Sprintf("%s[%d]", list, i); !c.unreadable(key) {
			check(key, &entries[i])
		}
	}
}

// checkUnique checks that the list at key has no entry twice.
func checkUnique[T ~string](c *checker, key string, list []T) {
	for i, entry := range list {
		if slices.Contains(list[:i], entry) {
			c.fail(fmt.Sprintf("%s[%d]", key, i), "%s is listed twice", quoteShort(string(entry)))
		}
	}
}

// checkPatterns calls check, which is checkPort or checkHost, for each pattern of the list at key.
func checkPatterns(key string, patterns []string, check func(key, pattern string)) {
	for i, p := range patterns {
		check(fmt.Sprintf("%s[%d]", key, i), p)
	}
}

// checkPort checks that a pattern matches a port, unless the fabric is invalid (then c.fabric is
// nil) or there are more than maxPatterns patterns.
func (c *checker) checkPort(key, pattern string) {
	if c.fabric == nil || !c.countPattern(key) {
		return
	}
	if _, err := c.fabric.Match(pattern); err != nil {
		c.fail(key, "%w", err)
	}
}

// checkHost checks that a pattern matches a host, unless the fabric is invalid (then c.fabric is
// nil) or there are more than maxPatterns patterns.
func (c *checker) checkHost(key, pattern string) {
	if c.fabric == nil || !c.countPattern(key) {
		return
	}
	if _, err := path.Match(pattern, ""); err != nil {
		c.fail(key, "%s is not a pattern: write host1 or host*", quoteShort(pattern))
		return
	}
	if slices.ContainsFunc(c.hosts, func(h string) bool { return MatchesAny([]string{pattern}, h) }) {
		return
	}
	c.fail(key, "no host matches %s: the fabric has %s to %s", quoteShort(pattern), c.hosts[0], c.hosts[len(c.hosts)-1])
}

// countPattern counts a pattern of hosts or ports, and reports whether maxPatterns permits it.
func (c *checker) countPattern(key string) bool {
	c.patterns++
	if c.patterns == maxPatterns+1 {
		c.fail(key, "more than %d patterns of hosts and ports: use fewer, such as host*", maxPatterns)
	}
	return c.patterns <= maxPatterns
}

// Limits of fabrics. Package topology checks the rest.
const (
	maxPorts  = 2048 // NICs of all hosts
	maxTrunks = 1024 // cables between switches
)

// checkFabric checks the hosts, switches and links, and builds the topology if they are valid.
func (c *checker) checkFabric() {
	const at = "fabric"
	f := &c.s.Fabric
	if c.unreadable(at) || !c.has(at) {
		return
	}
	before := len(c.errs)
	if f.Kind == Pair && f.Hosts != 0 && f.Hosts != 2 { // 0: left out
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

// buildTopology sets the topology that patterns are matched against. It first builds the fabric
// without the exceptions in "links", whose patterns may be wrong.
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

// checkLink checks the section "link", or an entry of "links".
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

// checkNIC checks the section "nic": its defects and the hosts that have them.
func (c *checker) checkNIC() {
	n := &c.s.NIC
	if c.unreadable("nic") {
		return
	}
	if len(n.Defects) == 0 {
		c.rejectKeys("nic", "there are no defects", "on")
	}
	checkUnique(c, "nic.defects", n.Defects)
	checkPatterns("nic.on", n.On, c.checkHost)
}
