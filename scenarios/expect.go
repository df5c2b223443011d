package scenarios

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/scenarios/workload"
)

// checkWorkload checks the section "workload" for the hosts of the fabric.
func (c *checker) checkWorkload() {
	if c.fabric == nil || c.unreadable("workload") || !c.has("workload") {
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
		return
	}
	paired := []workload.Kind{workload.Stream, workload.PingPong, workload.Random, workload.Calls} // between ranks 2i and 2i+1
	if w.Kind == workload.Collective {
		c.rejectKeys("workload", "the runtime chooses it", "depth", "mtu", "retries", "rnr_retries", "rnr_timer", "excuses")
	}
	if n := c.s.RankCount(); n%2 != 0 && slices.Contains(paired, w.Kind) {
		c.fail("workload.ranks", "%d ranks: %s needs pairs: give an even number", n, w.Kind)
	}
}

// checkExpect checks the section "expect", and in it the section "in" with the exceptions for a
// tier (where the scenario is run: sim or netns).
func (c *checker) checkExpect() {
	if c.unreadable("expect") {
		return
	}
	c.checkExpectations("expect", &c.s.Expect)
	for t, e := range c.s.Expect.In {
		key := join("expect.in", string(t))
		if !c.s.RunsOn(t) {
			c.fail(key, "the scenario does not run on %s, which \"tiers\" does not list", t)
		}
		c.rejectKeys(key, "the exceptions for a tier have no exceptions", "in")
		c.checkExpectations(key, &e)
	}
	c.checkKilled()
}

// checkExpectations checks the expectations of the section at key: their ranges, and whether the
// scenario can meet them.
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
	if limit := c.s.TimeLimit(); e.MaxTime > limit && !c.unreadable("limit") {
		c.fail(key+".max_time", "%s: the run is ended after %s; raise limit", formatDuration(e.MaxTime), formatDuration(limit))
	}
	// A QPError has no duration: it ends at once.
	ends := func(f Fault) bool { return f.For > 0 || f.Do == QPError }
	if e.Recovery > 0 && !c.unreadable("faults") && !slices.ContainsFunc(c.s.Faults, ends) {
		c.fail(key+".recovery", "no fault ends: give a fault the key \"for\"")
	}
}

// checkStatuses checks completion errors by host pattern.
func (c *checker) checkStatuses(key string, byHost map[string][]string) {
	for pattern, names := range byHost {
		at := join(key, pattern)
		c.checkHost(at, pattern)
		if len(names) == 0 {
			c.fail(at, "an empty list: name an error, or leave the host out")
		}
		for i, n := range names {
			if names := ErrorNames(); !slices.Contains(names, n) {
				c.fail(fmt.Sprintf("%s[%d]", at, i), "%s is not a completion error%s", quoteShort(n), suggestion(n, names))
			}
		}
	}
}

// checkKilled checks that exactly the killed hosts are expected to be killed.
func (c *checker) checkKilled() {
	if c.fabric == nil || c.unreadable("faults") {
		return
	}
	killedBy := map[string]string{} // key of the fault, by host
	for i, f := range c.s.Faults {
		if f.Do == Kill {
			for _, h := range c.hosts {
				if MatchesAny(f.On, h) {
					killedBy[h] = cmp.Or(killedBy[h], fmt.Sprintf("faults[%d].on", i))
				}
			}
		}
	}
	checkPatterns("expect.killed", c.s.Expect.Killed, c.checkHost)
	for _, h := range c.hosts {
		expected := MatchesAny(c.s.Expect.Killed, h)
		switch killed := killedBy[h]; {
		case killed != "" && !expected:
			c.fail(killed, "%s is killed, and expect.killed does not say so", h)
			return
		case killed == "" && expected:
			c.fail("expect.killed", "no fault kills %s", h)
			return
		}
	}
}

// Expect is the expected result. An omitted key is not checked, except that corrupted data
// and failing programs are never accepted.
type Expect struct {
	// Delivered is exactly-once (if left out, on reliable services), at-most-once, or any.
	Delivered string `yaml:"delivered,omitempty" enum:"exactly-once at-most-once any"`
	// Memory is identical (if left out): all written memory has the contents that the
	// requests in order produce; or any.
	Memory string `yaml:"memory,omitempty" enum:"identical any"`
	// Errors are the completion errors that must occur, by host pattern: {host0: [retry
	// exceeded]}. No others may, but for allowed_errors. Requests that are flushed because
	// of one of them, at either end, need not be listed. {} alone means that no completion error
	// may occur, flushed requests included. "peer lost" is that of collective operations that
	// cannot reach a rank. Without errors and allowed_errors, completion
	// errors are not judged; the messages that they cost are.
	Errors map[string][]string `yaml:"errors,omitempty"`
	// AllowedErrors are completion errors that may occur, by host pattern, in addition to errors.
	AllowedErrors map[string][]string `yaml:"allowed_errors,omitempty"`
	// Killed are the hosts that are killed before the end.
	Killed []string `yaml:"killed,omitempty"`
	// Violations counts broken guarantees that the programs detect; 0 if left out. A
	// scenario with a defect that must be caught expects at least one.
	Violations Range `yaml:"violations,omitempty"`

	// Retransmits counts retransmitted packets of all ranks.
	Retransmits Range `yaml:"retransmits,omitempty"`
	// Reconnects counts reconnections.
	Reconnects Range `yaml:"reconnects,omitempty"`
	// Marked counts packets with a CE mark.
	Marked Range `yaml:"marked,omitempty"`
	// Lost counts packets lost in the fabric or corrupted.
	Lost Range `yaml:"lost,omitempty"`
	// MaxTime is the longest time that the workload of a rank may take, from its first request
	// to its last completion of a message.
	MaxTime time.Duration `yaml:"max_time,omitempty"`
	// MaxMemory is the largest resident memory of any rank's process.
	MaxMemory Bytes `yaml:"max_memory,omitempty" range:"1048576..1099511627776"`
	// Recovery is how long traffic may take to resume after the end of each fault.
	Recovery time.Duration `yaml:"recovery,omitempty"`

	// In are exceptions for one tier, key by key: {sim: {lost: {max: 0}}}.
	In map[Tier]Expect `yaml:"in,omitempty" enum:"sim netns"`
}

// Range limits a count.
type Range struct {
	// Min is the smallest count; 0 if left out.
	Min *uint64 `yaml:"min,omitempty"`
	// Max is the largest count; unlimited if left out.
	Max *uint64 `yaml:"max,omitempty"`
}

// Contains reports whether n is within r.
func (r Range) Contains(n uint64) bool {
	return (r.Min == nil || n >= *r.Min) && (r.Max == nil || n <= *r.Max)
}

// IsZero reports whether r has no limit.
func (r Range) IsZero() bool { return r.Min == nil && r.Max == nil }

// ExpectOn returns the expectations on a tier (where the scenario is run: sim or netns): Expect
// with the exceptions of In.
func (s *Scenario) ExpectOn(t Tier) Expect {
	e := s.Expect
	exceptions := reflect.ValueOf(s.Expect.In[t])
	out := reflect.ValueOf(&e).Elem()
	for i := range out.NumField() {
		if f := exceptions.Field(i); !f.IsZero() {
			out.Field(i).Set(f)
		}
	}
	e.In = nil
	return e
}

// RunsOn reports whether the scenario runs on a tier (simulation or network namespaces): on all, if
// it lists none. An experiment runs in simulation only.
func (s *Scenario) RunsOn(t Tier) bool {
	if s.Experiment != nil && t != Sim {
		return false
	}
	return len(s.Tiers) == 0 || slices.Contains(s.Tiers, t)
}

// TimeLimit is how long the run may take before it fails as hung.
func (s *Scenario) TimeLimit() time.Duration { return cmp.Or(s.Limit, DefaultLimit) }
