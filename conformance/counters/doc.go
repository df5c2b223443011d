// Package counters has conformance cases about device counters. Each case causes events
// on the wire, counts them in the record of the bench, and compares the increase of the
// device's counters with it. Counters of events that did not happen must not change.
//
// Tables map quantities to the counter names of each kind of device. A counter that a
// device does not have is not checked.
package counters

import (
	"fmt"
	"maps"
	"slices"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
)

// quantity is a kind of event that devices count.
type quantity string

// interval is a range of correct counts, for counters whose meaning leaves a choice.
type interval struct{ min, max uint64 }

func exactly[N int | uint64](n N) interval    { return interval{uint64(n), uint64(n)} }
func between[N int | uint64](a, b N) interval { return interval{uint64(a), uint64(b)} }

func (s interval) contains(n uint64) bool   { return n >= s.min && n <= s.max }
func (s interval) plus(t interval) interval { return interval{s.min + t.min, s.max + t.max} }

// oneOf returns a check whether a number is one of ns.
func oneOf(ns ...uint64) func(uint64) bool {
	return func(n uint64) bool { return slices.Contains(ns, n) }
}

func (s interval) String() string {
	if s.min == s.max {
		return fmt.Sprint(s.min)
	}
	return fmt.Sprintf("%d to %d", s.min, s.max)
}

// table maps quantities to the names of their counters.
type table map[quantity][]string

// values are the counters of a device at one time.
type values map[string]uint64

// readCounters returns the counters of the device.
func readCounters(r *rig.Rig) values {
	v := make(values)
	for _, c := range r.Device.Counters() {
		v[c.Name] = c.Value
	}
	return v
}

// counts are the numbers of events that happened. A missing quantity is 0.
type counts map[quantity]interval

// expectIncreases fails the case unless every judged counter that the device has
// increased as expected. custom are checks for quantities that no interval describes.
func (t table) expectIncreases(r *rig.Rig, judged func(quantity) bool, before, after values, f counts, custom map[quantity]func(uint64) bool) {
	for _, q := range slices.Sorted(maps.Keys(t)) {
		if !judged(q) {
			continue
		}
		for _, name := range t[q] {
			now, ok := after[name]
			if !ok {
				continue
			}
			delta := now - before[name]
			if fits := custom[q]; fits != nil {
				r.Check(fits(delta), fmt.Sprintf("%s increased by the bytes on the wire, in some unit", name), "%d", delta)
				continue
			}
			r.Check(f[q].contains(delta), fmt.Sprintf("%s increased by %v (%s)", name, f[q], q), "%d", delta)
		}
	}
}

// stuckDefects returns the defects that a case about these quantities detects: each makes
// the counter of one stand still.
func (t table) stuckDefects(qs ...quantity) (defects []string) {
	for _, q := range qs {
		defects = append(defects, "CounterStuck="+t[q][0])
	}
	return defects
}

// requireAny ends the case as unsupported if the device has none of the counters of these
// quantities.
func (t table) requireAny(r *rig.Rig, qs ...quantity) {
	now := readCounters(r)
	for _, q := range qs {
		for _, name := range t[q] {
			if _, ok := now[name]; ok {
				return
			}
		}
	}
	rig.Abort(fmt.Errorf("the device has none of the counters of this case: %w", conformance.ErrBenchCannot))
}
