package scenarios

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
)

// checkImpairment checks an entry of "impair", or the section "set" of a fault.
func (c *checker) checkImpairment(key string, im *Impairment) {
	checkPatterns(key+".on", im.On, c.checkPort)
	if im.Until != 0 && im.Until <= im.From {
		c.fail(key+".until", "%s is not after from, %s", formatDuration(im.Until), formatDuration(im.From))
	}
	if im.Duplicate == 0 {
		c.rejectKeys(key, "nothing is duplicated", "duplicate_delay")
	}
	switch {
	case im.Reorder == 0:
		c.rejectKeys(key, "nothing is reordered", "reorder_delay")
	case im.ReorderDelay == 0:
		c.fail(key+".reorder_delay", "is missing: expected how long packets are held back")
	}
	if im.Jitter == 0 {
		c.rejectKeys(key, "there is no jitter that could reorder packets", "keep_order")
	}
	if im.Rate == 0 {
		c.rejectKeys(key, "without rate nothing ever queues", "queue")
	}
	if c.has(key+".burst") && im.Burst.ToBad == 0 {
		c.fail(key+".burst.to_bad", "0%%: the channel never turns bad: leave burst out")
	}
	if c.has(key+".burst") && im.Burst.Loss == 0 {
		c.fail(key+".burst.loss", "0%%: nothing is lost: leave burst out")
	}
	effects := *im // without the keys that say where, when and in which order
	effects.PortSelector, effects.From, effects.Until, effects.KeepOrder = PortSelector{}, 0, 0, false
	if reflect.ValueOf(effects).IsZero() {
		c.fail(key, "does nothing: give loss, delay, rate or another impairment")
	}
}

// keyRule has the permitted and the required keys of an action.
type keyRule struct{ may, must []string }

// checkKeys checks the keys of a section against the rule of its action. keys are the keys of all
// actions: the section may have only those that the rule lists. It reports whether the section has
// all keys that the action needs.
func (c *checker) checkKeys(section, action string, rule keyRule, keys ...string) bool {
	for _, k := range keys {
		if !slices.Contains(rule.may, k) && !slices.Contains(rule.must, k) {
			c.rejectKeys(section, action+" does not use it", k)
		}
	}
	return c.requireKeys(section, action+" needs it", rule.must...)
}

// eventKeys are the keys of an event, by action.
var eventKeys = map[string]keyRule{
	"drop":        {},
	"duplicate":   {may: []string{"count", "delay"}},
	"delay":       {must: []string{"delay"}},
	"reorder":     {may: []string{"count"}, must: []string{"delay"}},
	"corrupt_bit": {may: []string{"bit"}},
	"truncate":    {may: []string{"bytes"}},
	"set_ecn":     {may: []string{"ecn"}},
	"set_field":   {may: []string{"value"}, must: []string{"field"}},
	"reset":       {},
}

// streamActions are the actions on a TCP stream.
var streamActions = []string{"drop", "delay", "corrupt_bit", "reset"}

// checkStreamEvent checks an event on a TCP stream.
func (c *checker) checkStreamEvent(key string, e *Event) {
	c.rejectKeys(key, "offset already selects a byte of a stream", "qp", "psn", "nth", "time")
	if !slices.Contains(streamActions, e.Do) {
		c.fail(key+".do", "%s is for packets: on a stream use one of %s", e.Do, strings.Join(streamActions, ", "))
	}
	if e.Bit < 0 || e.Bit > 7 {
		c.fail(key+".bit", "%d: the byte at offset has bits 0 to 7", e.Bit)
	}
}

// checkEvent checks that an event selects a packet or a stream byte, and has its action's keys.
func (c *checker) checkEvent(key string, e *Event) {
	checkPatterns(key+".on", e.On, c.checkPort)
	if e.Offset == nil {
		c.rejectKeys(key, "it selects a stream, which needs offset", "conn")
	}
	switch {
	case e.Offset != nil:
		c.checkStreamEvent(key, e)
	case e.Do == "reset":
		c.fail(key+".do", "reset is for TCP streams: give offset")
	case e.Nth > 0:
		c.rejectKeys(key, "nth already selects a packet", "psn", "time")
	case e.PSN == nil:
		c.fail(key, "selects no packet: give psn or nth, or offset of a TCP stream")
	}
	rule := eventKeys[e.Do]
	c.checkKeys(key, e.Do, rule, "count", "delay", "bit", "bytes", "ecn", "field", "value")
	if e.Delay == 0 && c.has(key+".delay") && slices.Contains(rule.must, "delay") {
		c.fail(key+".delay", "0s does nothing: give a longer time")
	}
}

// faultKeys are the keys of a fault, by action.
var faultKeys = map[FaultAction]keyRule{
	Down:      {may: []string{"for"}, must: []string{"on"}},
	Partition: {may: []string{"for"}, must: []string{"groups"}},
	SetImpair: {may: []string{"for"}, must: []string{"set"}},
	Kill:      {must: []string{"on"}},
	Freeze:    {may: []string{"for"}, must: []string{"on"}},
	QPError:   {must: []string{"on"}},
}

// checkFault checks that a fault has the keys of its action and names ports or hosts of the fabric.
func (c *checker) checkFault(key string, f *Fault) {
	if !c.checkKeys(key, string(f.Do), faultKeys[f.Do], "on", "for", "groups", "set") {
		return
	}
	switch f.Do {
	case Down:
		checkPatterns(key+".on", f.On, c.checkPort)
	case Kill, Freeze, QPError:
		checkPatterns(key+".on", f.On, c.checkHost)
	case Partition:
		c.checkGroups(key+".groups", f.Groups)
	case SetImpair:
		c.rejectKeys(key+".set", `the fault's "at" and "for" say when`, "from", "until")
		c.checkImpairment(key+".set", f.Set)
	}
	c.checkRepetition(key, f)
	c.checkTimes(key, f)
}

// checkTimes rejects a fault that begins, or is repeated, after the end of the run.
func (c *checker) checkTimes(key string, f *Fault) {
	limit, last := c.s.TimeLimit(), f.At
	if f.Times > 1 {
		last += time.Duration(f.Times-1) * f.Every
	}
	switch {
	case c.unreadable("limit") || last < limit:
	case f.At < limit:
		c.fail(key+".times", "%d: the last one begins at %s, but the run ends at %s; raise limit", f.Times, formatDuration(last), formatDuration(limit))
	default:
		c.fail(key+".at", "%s: the run ends at %s; raise limit", formatDuration(f.At), formatDuration(limit))
	}
}

// checkRepetition checks the keys times and every of a fault.
func (c *checker) checkRepetition(key string, f *Fault) {
	switch {
	case f.Times == 0 && f.Every > 0:
		c.fail(key+".every", "the fault occurs once: give times as well, or leave it out")
	case f.Times == 0:
	case f.Do == Kill:
		c.rejectKeys(key, "a host can be killed once", "times", "every")
	case f.Every == 0:
		c.fail(key+".every", "is missing: expected the period of the repetition")
	case f.Every <= f.For:
		c.fail(key+".every", "%s is not longer than for, %s: the fault would never be undone", formatDuration(f.Every), formatDuration(f.For))
	}
}

// checkGroups checks that every pattern matches a port, and that no port is in two groups.
func (c *checker) checkGroups(key string, groups [][]string) {
	if c.fabric == nil {
		return
	}
	groupOf := map[string]int{} // by port
	for i, g := range groups {
		for k, pattern := range g {
			at := fmt.Sprintf("%s[%d][%d]", key, i, k)
			if !c.countPattern(at) {
				return
			}
			ports, err := c.fabric.Match(pattern)
			if err != nil {
				c.fail(at, "%w", err)
			}
			for _, p := range ports {
				if first, ok := groupOf[p.String()]; ok && first != i {
					c.fail(at, "%v is in another group already", p)
					break
				}
				groupOf[p.String()] = i
			}
		}
	}
}
