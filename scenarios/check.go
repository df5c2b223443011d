package scenarios

import (
	"fmt"
	"path"

	"github.com/fabrictest/fabrictest/netns/topology"
)

// maxPatterns bounds the patterns of hosts and ports in all of a file: each is
// held against every port.
const maxPatterns = 256

// checker looks for what makes no sense although every value can be read: keys
// that contradict each other, or name what the fabric does not have.
type checker struct {
	s    *Scenario
	bad  func(key string) bool // a value at or below key could not be read
	errs Errors

	fabric   *topology.Topology // nil if it could not be drawn
	hosts    []string
	patterns int
}

func (c *checker) fail(key, format string, args ...any) {
	c.errs = append(c.errs, c.s.source.errorAt(key, fmt.Errorf(format, args...)))
}

// given reports whether the file has a key.
func (c *checker) given(key string) bool {
	_, ok := c.s.source.places[key]
	return ok
}

// refuse complains of keys in a section that mean nothing there.
func (c *checker) refuse(section, why string, keys ...string) {
	for _, k := range keys {
		if key := join(section, k); c.given(key) {
			c.fail(key, "%s: leave it out", why)
		}
	}
}

// need complains of keys that are missing in a section, and reports whether none
// is.
func (c *checker) need(section, why string, keys ...string) bool {
	all := true
	for _, k := range keys {
		if key := join(section, k); !c.given(key) {
			c.fail(key, "is missing: %s", why)
			all = false
		}
	}
	return all
}

func (c *checker) everything() {
	c.checkNames()
	c.checkFabric()
	c.checkNIC()
	for i := range c.s.Impair {
		if key := fmt.Sprintf("impair[%d]", i); !c.bad(key) {
			c.impairment(key, &c.s.Impair[i])
		}
	}
	for i := range c.s.Events {
		if key := fmt.Sprintf("events[%d]", i); !c.bad(key) {
			c.event(key, &c.s.Events[i])
		}
	}
	for i := range c.s.Faults {
		if key := fmt.Sprintf("faults[%d]", i); !c.bad(key) {
			c.fault(key, &c.s.Faults[i])
		}
	}
	c.checkWorkload()
	c.checkExpect()
}

func (c *checker) checkNames() {
	seen := map[string]bool{}
	for i, t := range c.s.Tags {
		if seen[t] {
			c.fail(fmt.Sprintf("tags[%d]", i), "%s is there already", shown(t))
		}
		seen[t] = true
	}
	for i, t := range c.s.Tiers {
		if seen["tier "+string(t)] {
			c.fail(fmt.Sprintf("tiers[%d]", i), "%s is there already", t)
		}
		seen["tier "+string(t)] = true
	}
}

// ports checks patterns of ports, each of which must pick one.
func (c *checker) ports(key string, patterns []string) {
	for i, p := range patterns {
		c.port(fmt.Sprintf("%s[%d]", key, i), p)
	}
}

func (c *checker) port(key, pattern string) {
	if c.fabric == nil || !c.spend(key) {
		return
	}
	if _, err := c.fabric.Match(pattern); err != nil {
		c.fail(key, "%w", err)
	}
}

// hostsAt checks patterns of hosts, each of which must pick one.
func (c *checker) hostsAt(key string, patterns []string) {
	for i, p := range patterns {
		c.host(fmt.Sprintf("%s[%d]", key, i), p)
	}
}

func (c *checker) host(key, pattern string) {
	if c.fabric == nil || !c.spend(key) {
		return
	}
	if _, err := path.Match(pattern, ""); err != nil {
		c.fail(key, "%s is not a pattern: write host1 or host*", shown(pattern))
		return
	}
	for _, h := range c.hosts {
		if MatchHost([]string{pattern}, h) {
			return
		}
	}
	c.fail(key, "no host matches %s: the fabric has %s to %s", shown(pattern), c.hosts[0], c.hosts[len(c.hosts)-1])
}

// spend counts a pattern and reports whether it may be looked at.
func (c *checker) spend(key string) bool {
	c.patterns++
	if c.patterns == maxPatterns+1 {
		c.fail(key, "more than %d patterns of hosts and ports: use fewer, such as host*", maxPatterns)
	}
	return c.patterns <= maxPatterns
}
