package scenarios

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
)

// impairment checks one entry of impair, or what a fault sets.
func (c *checker) impairment(key string, im *Impairment) {
	c.ports(key+".on", im.On)
	if im.Until != 0 && im.Until <= im.From {
		c.fail(key+".until", "%s is not after from, %s", formatDuration(im.Until), formatDuration(im.From))
	}
	if im.Duplicate == 0 {
		c.refuse(key, "nothing is duplicated", "duplicate_delay")
	}
	switch {
	case im.Reorder == 0:
		c.refuse(key, "nothing is reordered", "reorder_delay")
	case im.ReorderDelay == 0:
		c.fail(key+".reorder_delay", "is missing: expected how long packets are held back")
	}
	if im.Jitter == 0 {
		c.refuse(key, "without jitter nothing gets out of order", "keep_order")
	}
	if im.Rate == 0 {
		c.refuse(key, "without rate nothing ever queues", "queue")
	}
	if c.given(key + ".burst") {
		c.burst(key+".burst", &im.Burst)
	}
	nothing := *im
	nothing.PortSelector, nothing.From, nothing.Until, nothing.KeepOrder = PortSelector{}, 0, 0, false
	if reflect.ValueOf(nothing).IsZero() {
		c.fail(key, "does nothing: give loss, delay, rate or another thing that happens to packets")
	}
}

func (c *checker) burst(key string, b *Burst) {
	if b.ToBad == 0 {
		c.fail(key+".to_bad", "0%%: the channel never turns bad: leave burst out")
	}
	if b.Loss == 0 {
		c.fail(key+".loss", "0%%: nothing is lost: leave burst out")
	}
}

// eventKeys are the keys of an event that depend on what it does.
var eventKeys = map[string]struct{ may, must []string }{
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

// streamDeeds are what can be done at a place of a stream.
var streamDeeds = []string{"drop", "delay", "corrupt_bit", "reset"}

// streamEvent checks an event at a place of a TCP stream.
func (c *checker) streamEvent(key string, e *Event) {
	c.refuse(key, "offset already names a place in a stream", "qp", "psn", "nth", "time")
	if !slices.Contains(streamDeeds, e.Do) {
		c.fail(key+".do", "%s is for packets: at a place of a stream there are %s", e.Do, strings.Join(streamDeeds, ", "))
	}
	if e.Bit < 0 || e.Bit > 7 {
		c.fail(key+".bit", "%d: the byte at offset has bits 0 to 7", e.Bit)
	}
}

func (c *checker) event(key string, e *Event) {
	c.ports(key+".on", e.On)
	if e.Offset == nil {
		c.refuse(key, "it tells streams apart: give offset, or name a packet", "conn")
	}
	switch {
	case e.Offset != nil:
		c.streamEvent(key, e)
	case e.Do == "reset":
		c.fail(key+".do", "reset breaks a TCP stream: give offset to say where")
	case e.Nth > 0:
		c.refuse(key, "nth already names one packet", "psn", "time")
	case e.PSN == nil:
		c.fail(key, "names no packet: give psn, or nth to count packets; or offset, of a TCP stream")
	}
	rule := eventKeys[e.Do]
	for _, k := range []string{"count", "delay", "bit", "bytes", "ecn", "field", "value"} {
		if !slices.Contains(rule.may, k) && !slices.Contains(rule.must, k) {
			c.refuse(key, e.Do+" has no use for it", k)
		}
	}
	c.need(key, e.Do+" needs it", rule.must...)
	if e.Delay == 0 && slices.Contains(rule.must, "delay") {
		c.refuse(key, "0s does nothing", "delay")
	}
}

// faultKeys are the keys of a fault that depend on what it does.
var faultKeys = map[FaultAction]struct{ may, must []string }{
	Down:      {may: []string{"for"}, must: []string{"on"}},
	Partition: {may: []string{"for"}, must: []string{"groups"}},
	SetImpair: {may: []string{"for"}, must: []string{"set"}},
	Kill:      {must: []string{"on"}},
	Freeze:    {may: []string{"for"}, must: []string{"on"}},
	QPError:   {must: []string{"on"}},
}

func (c *checker) fault(key string, f *Fault) {
	rule := faultKeys[f.Do]
	for _, k := range []string{"on", "for", "groups", "set"} {
		if !slices.Contains(rule.may, k) && !slices.Contains(rule.must, k) {
			c.refuse(key, string(f.Do)+" has no use for it", k)
		}
	}
	if !c.need(key, string(f.Do)+" needs it", rule.must...) {
		return
	}
	switch f.Do {
	case Down:
		c.ports(key+".on", f.On)
	case Kill, Freeze, QPError:
		c.hostsAt(key+".on", f.On)
	case Partition:
		c.groups(key+".groups", f.Groups)
	case SetImpair:
		c.refuse(key+".set", "the fault says when, with at and for", "from", "until")
		c.impairment(key+".set", f.Set)
	}
	c.repetition(key, f)
	c.inTime(key, f)
}

// inTime refuses what would be done only after the run has been ended.
func (c *checker) inTime(key string, f *Fault) {
	limit, last := c.s.TimeLimit(), f.At
	if f.Times > 1 {
		last += time.Duration(f.Times-1) * f.Every
	}
	switch {
	case c.bad("limit") || last < limit:
	case f.At < limit:
		c.fail(key+".times", "%d: the last one begins at %s, and the run is ended at %s; raise limit", f.Times, formatDuration(last), formatDuration(limit))
	default:
		c.fail(key+".at", "%s: the run is ended at %s; raise limit", formatDuration(f.At), formatDuration(limit))
	}
}

// repetition checks a fault that is done several times.
func (c *checker) repetition(key string, f *Fault) {
	switch {
	case f.Times == 0 && f.Every > 0:
		c.fail(key+".every", "the fault is done once: give times as well, or leave it out")
	case f.Times == 0:
	case f.Do == Kill:
		c.refuse(key, "a host can be killed once", "times", "every")
	case f.Every == 0:
		c.fail(key+".every", "is missing: expected the time from one beginning to the next")
	case f.Every <= f.For:
		c.fail(key+".every", "%s is not longer than for, %s: the fault would never be undone", formatDuration(f.Every), formatDuration(f.For))
	}
}

// groups checks that no port is in two groups at once.
func (c *checker) groups(key string, groups [][]string) {
	if c.fabric == nil {
		return
	}
	in := map[string]int{}
	for i, g := range groups {
		for k, pattern := range g {
			at := fmt.Sprintf("%s[%d][%d]", key, i, k)
			if !c.spend(at) {
				return
			}
			ports, err := c.fabric.Match(pattern)
			if err != nil {
				c.fail(at, "%w", err)
			}
			for _, p := range ports {
				if first, ok := in[p.String()]; ok && first != i {
					c.fail(at, "%v is in another group already", p)
					break
				}
				in[p.String()] = i
			}
		}
	}
}
