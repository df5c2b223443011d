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
	what string
	// Names are those of the counter on devices; a device has at most one of them.
	Names []string
	// ambiguous counters grow with all traffic, or their names leave a choice. Only cases
	// about them check them.
	ambiguous bool
}

// NewCounter returns a counter that every case checks.
func NewCounter(what string, names ...string) *Counter { return &Counter{what: what, Names: names} }

// NewAmbiguousCounter returns a counter that only cases about it check.
func NewAmbiguousCounter(what string, names ...string) *Counter {
	return &Counter{what: what, Names: names, ambiguous: true}
}

// Interval is a range of correct counts, for counters whose meaning leaves a choice.
type Interval struct{ min, max uint64 }

// Exactly returns an interval of one number.
func Exactly(n int) Interval { return Between(n, n) }

// Between returns the interval of the numbers from a to b.
func Between(a, b int) Interval { return Interval{uint64(a), uint64(b)} }

// String formats the interval.
func (s Interval) String() string {
	if s.min == s.max {
		return fmt.Sprint(s.min)
	}
	return fmt.Sprintf("%d to %d", s.min, s.max)
}

// Counts are the numbers of events that happened. A missing counter is 0.
type Counts map[*Counter]Interval

// Add adds to the count of a counter.
func (f Counts) Add(c *Counter, n Interval) {
	f[c] = Interval{f[c].min + n.min, f[c].max + n.max}
}

// AddAll adds other counts.
func (f Counts) AddAll(more Counts) {
	for c, n := range more {
		f.Add(c, n)
	}
}

// CounterCase sets the citation, level and defects of a case about counters: the device must
// count the events on the wire. Each defect keeps one counter from increasing.
func CounterCase(c conformance.Case, about []*Counter) conformance.Case {
	c.Cite, c.Level = conformance.Cite{Doc: "package verbs", Rows: []string{"verbs/counters/3"}}, conformance.Should
	for _, k := range about {
		c.Defects = append(c.Defects, "CounterStuck="+k.Names[0])
	}
	return c
}

// CounterCheck compares the increase of the counters of a device with the events of a case.
type CounterCheck struct {
	r          *Rig
	all, about []*Counter
	before     map[string]uint64
	firstEvent int // index of the first recorded event that counts
}

// StartCounterCheck reads the counters. It ends a case about counters as unsupported if the
// device has none of these.
func (r *Rig) StartCounterCheck(all, about []*Counter) *CounterCheck {
	events, _ := r.Record.Events()
	k := &CounterCheck{r: r, all: slices.Clone(all), about: about, before: r.counters(), firstEvent: len(events)}
	slices.SortFunc(k.all, func(a, b *Counter) int { return strings.Compare(a.what, b.what) })
	for _, c := range about {
		for _, name := range c.Names {
			if _, ok := k.before[name]; ok {
				return k
			}
		}
	}
	Abort(fmt.Errorf("the device has none of the counters of this case: %w", conformance.ErrBenchCannot))
	return nil
}

// counters returns the counters of the device by name.
func (r *Rig) counters() map[string]uint64 {
	v := make(map[string]uint64)
	for _, c := range r.Device.Counters() {
		v[c.Name] = c.Value
	}
	return v
}

// Events returns the events that were recorded since the start.
func (k *CounterCheck) Events() []conformance.Event {
	events, beyond := k.r.Record.Events()
	if beyond > 0 {
		Abort(fmt.Errorf("the record lacks %d events", beyond))
	}
	return events[k.firstEvent:]
}

// Expect fails the case unless every counter that the device has increased by its count.
// The counters of events that did not happen must not change. A counter in units may
// increase by any of several numbers instead.
func (k *CounterCheck) Expect(f Counts, units map[*Counter][]uint64) {
	after := k.r.counters()
	for _, c := range k.all {
		if c.ambiguous && !slices.Contains(k.about, c) {
			continue
		}
		for _, name := range c.Names {
			now, ok := after[name]
			if !ok {
				continue
			}
			delta := now - k.before[name]
			if fits, ok := units[c]; ok {
				k.r.Check(slices.Contains(fits, delta), fmt.Sprintf("%s increased by the bytes on the wire, in some unit", name), "%d", delta)
				continue
			}
			k.r.Check(f[c].min <= delta && delta <= f[c].max, fmt.Sprintf("%s increased by %v (%s)", name, f[c], c.what), "%d", delta)
		}
	}
}
