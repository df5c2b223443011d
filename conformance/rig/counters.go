package rig

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/conformance"
)

// Counter is a kind of event that devices count, with the names of its counters. A counter
// that a device does not have is not checked.
type Counter struct {
	event string // description of the counted event
	// Names are the names that devices have for the counter; a device has at most one of them.
	Names []string
	// ambiguous counters grow with all traffic, or their names have several meanings. Only
	// the cases about them check them.
	ambiguous bool
}

// NewCounter returns a counter that every case checks. event describes what it counts, and names
// are the names that devices have for the counter.
func NewCounter(event string, names ...string) *Counter { return &Counter{event: event, Names: names} }

// NewAmbiguousCounter returns a counter that grows with all traffic, or whose name has several
// meanings: unlike others, it is checked only by the cases about it.
func NewAmbiguousCounter(event string, names ...string) *Counter {
	return &Counter{event: event, Names: names, ambiguous: true}
}

// Interval is the range of correct counts of a counter whose definition permits several.
type Interval struct{ min, max uint64 }

// Exactly returns an interval of one number.
func Exactly(n int) Interval { return Between(n, n) }

// Between returns the interval of the numbers from a to b, both included.
func Between(a, b int) Interval { return Interval{uint64(a), uint64(b)} }

// String prints the bounds, or one number if they are equal.
func (i Interval) String() string {
	if i.min == i.max {
		return fmt.Sprint(i.min)
	}
	return fmt.Sprintf("%d to %d", i.min, i.max)
}

// Counts are the numbers of events that happened. A missing counter is 0.
type Counts map[*Counter]Interval

// Add adds the bounds of n to the bounds of the count of c.
func (s Counts) Add(c *Counter, n Interval) {
	s[c] = Interval{s[c].min + n.min, s[c].max + n.max}
}

// AddAll adds the counts of more to s.
func (s Counts) AddAll(more Counts) {
	for c, n := range more {
		s.Add(c, n)
	}
}

// CounterCase returns c as a case about the tested counters: it sets the cited clause, the level
// and, for each counter, the defect CounterStuck. An emulated device with this defect never
// increases the counter, and must fail the case.
func CounterCase(c conformance.Case, tested []*Counter) conformance.Case {
	c.Cite, c.Level = conformance.Cite{Doc: "package verbs", Rows: []string{"verbs/counters/3"}}, conformance.Should
	for _, counter := range tested {
		c.Defects = append(c.Defects, "CounterStuck="+counter.Names[0])
	}
	return c
}

// CounterCheck compares the increase of the counters of a device with the events of a case.
type CounterCheck struct {
	r           *Rig
	all, tested []*Counter
	before      map[string]uint64 // values at the start, by name
	firstEvent  int               // index of the first recorded event that counts
}

// StartCounterCheck reads the counters before the case acts. all are the counters to check, and
// tested those that the case is about: if the device has none of these, the case is unsupported.
func (r *Rig) StartCounterCheck(all, tested []*Counter) *CounterCheck {
	events, _ := r.Record.Events()
	check := &CounterCheck{r: r, all: slices.Clone(all), tested: tested, before: r.counters(), firstEvent: len(events)}
	// The order decides which of several wrong counters the case reports.
	slices.SortFunc(check.all, func(a, b *Counter) int { return strings.Compare(a.event, b.event) })
	for _, c := range tested {
		for _, name := range c.Names {
			if _, ok := check.before[name]; ok {
				return check
			}
		}
	}
	BenchCannot("the device has none of the counters of this case") // does not return
	return nil
}

// counters returns the values of the device's counters by name.
func (r *Rig) counters() map[string]uint64 {
	values := make(map[string]uint64)
	for _, c := range r.Device.Counters() {
		values[c.Name] = c.Value
	}
	return values
}

// Events returns the events that were recorded since StartCounterCheck. It ends the case if the
// record was too short for all of them.
func (check *CounterCheck) Events() []conformance.Event {
	events, omitted := check.r.Record.Events()
	if omitted > 0 {
		Abort(fmt.Errorf("the record lacks %d events", omitted))
	}
	return events[check.firstEvent:]
}

// Expect fails the case unless each counter of the device increased by a number in its interval in
// counts, or by 0 if it has none there. Counters in byteCounts must have increased by one of the
// listed numbers instead: devices count bytes in different units, and the list has the count in
// each unit. It skips ambiguous counters, which grow with all traffic or whose names have several
// meanings, unless the case is about them.
func (check *CounterCheck) Expect(counts Counts, byteCounts map[*Counter][]uint64) {
	after := check.r.counters()
	for _, c := range check.all {
		if c.ambiguous && !slices.Contains(check.tested, c) {
			continue
		}
		for _, name := range c.Names {
			now, ok := after[name]
			if !ok {
				continue
			}
			delta := now - check.before[name]
			if correct, ok := byteCounts[c]; ok {
				check.r.Check(slices.Contains(correct, delta), fmt.Sprintf("%s increased by the bytes on the wire, in some unit", name), "%d", delta)
				continue
			}
			check.r.Check(counts[c].min <= delta && delta <= counts[c].max, fmt.Sprintf("%s increased by %v (%s)", name, counts[c], c.event), "%d", delta)
		}
	}
}
