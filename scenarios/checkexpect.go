package scenarios

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/scenarios/workload"
)

func (c *checker) checkWorkload() {
	if c.fabric == nil || c.unreadable("workload") {
		return
	}
	w := &c.s.Workload
	err := w.Validate(len(c.hosts), c.s.Fabric.RailCount())
	var problems workload.ConfigError
	if errors.As(err, &problems) {
		for _, p := range problems {
			c.fail(join("workload", p.Key), "%s", p.Problem)
		}
		return
	}
	if err != nil {
		c.fail("workload", "%w", err)
	}
	if n := c.s.RankCount(); n%2 != 0 && runsInPairs(w.Kind) {
		c.fail("workload.ranks", "%d ranks: %s needs pairs: give an even number", n, w.Kind)
	}
}

func runsInPairs(k workload.Kind) bool {
	return slices.Contains([]workload.Kind{workload.Stream, workload.PingPong, workload.Random, workload.Calls}, k)
}

func (c *checker) checkExpect() {
	if c.unreadable("expect") {
		return
	}
	c.checkExpectations("expect", &c.s.Expect)
	for t, e := range c.s.Expect.In {
		key := join("expect.in", string(t))
		if !c.s.RunsOn(t) {
			c.fail(key, "the scenario does not run on %s: tiers says so", t)
		}
		c.rejectKeys(key, "it applies to a tier already", "in")
		c.checkExpectations(key, &e)
	}
	c.checkKilled()
}

func (c *checker) checkExpectations(key string, e *Expect) {
	c.checkStatuses(key+".errors", e.Errors)
	c.checkStatuses(key+".allowed_errors", e.AllowedErrors)
	for _, r := range []struct {
		key string
		Range
	}{
		{"violations", e.Violations},
		{"retransmits", e.Retransmits},
		{"reconnects", e.Reconnects},
		{"marked", e.Marked},
		{"lost", e.Lost},
	} {
		if r.Min != nil && r.Max != nil && *r.Max < *r.Min {
			c.fail(join(key, r.key)+".max", "%d is less than min, %d", *r.Max, *r.Min)
		}
	}
	w := &c.s.Workload
	if e.Reconnects.Min != nil && *e.Reconnects.Min > 0 && !w.Reconnect && !w.Failover && !c.unreadable("workload") {
		c.fail(key+".reconnects", "no rank reconnects: set workload.reconnect")
	}
	if limit := c.s.TimeLimit(); e.MaxTime > limit {
		c.fail(key+".max_time", "%s: the run is ended after %s; raise limit", formatDuration(e.MaxTime), formatDuration(limit))
	}
	ends := func(f Fault) bool { return f.For > 0 || f.Do == QPError }
	if e.Recovery > 0 && !c.unreadable("faults") && !slices.ContainsFunc(c.s.Faults, ends) {
		c.fail(key+".recovery", "no fault ends: give one a for")
	}
}

// checkStatuses checks completion errors by host pattern.
func (c *checker) checkStatuses(key string, by map[string][]string) {
	for pattern, names := range by {
		at := join(key, pattern)
		c.checkHost(at, pattern)
		if len(names) == 0 {
			c.fail(at, "an empty list: name an error, or leave the host out")
		}
		for i, n := range names {
			if _, ok := Status(n); !ok {
				c.fail(fmt.Sprintf("%s[%d]", at, i), "%s is not a completion error%s", quoteShort(n), suggestion(n, StatusNames()))
			}
		}
	}
}

// checkKilled checks that exactly the killed hosts are expected to be killed.
func (c *checker) checkKilled() {
	if c.fabric == nil || c.unreadable("faults") {
		return
	}
	where := map[string]string{}
	for i, f := range c.s.Faults {
		if f.Do == Kill {
			for _, h := range c.hosts {
				if MatchHost(f.On, h) {
					where[h] = cmp.Or(where[h], fmt.Sprintf("faults[%d].on", i))
				}
			}
		}
	}
	c.checkHosts("expect.killed", c.s.Expect.Killed)
	for _, h := range c.hosts {
		expected := MatchHost(c.s.Expect.Killed, h)
		switch killed := where[h]; {
		case killed != "" && !expected:
			c.fail(killed, "%s is killed, and expect.killed does not say so", h)
			return
		case killed == "" && expected:
			c.fail("expect.killed", "no fault kills %s", h)
			return
		}
	}
}
