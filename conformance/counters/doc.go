// Package counters asks whether what a device counts is true. Each case provokes
// events on the wire, counts what passed in the judge's own record, and holds that
// against how far the device's counters have gone: those of what happened, and those
// of what did not, which must have stood still.
//
// What is counted under which name is data, for each kind of device. A counter that a
// device does not have is not judged; one that it has must not lie.
package counters

import (
	"fmt"
	"maps"
	"slices"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
)

// quantity is something that can be counted.
type quantity string

// span is how often something has happened: where the meaning of a counter leaves a
// choice, any number from least to most is true.
type span struct{ least, most uint64 }

// exactly and between make spans.
func exactly[N int | uint64](n N) span    { return span{uint64(n), uint64(n)} }
func between[N int | uint64](a, b N) span { return span{uint64(a), uint64(b)} }
func (s span) has(n uint64) bool          { return n >= s.least && n <= s.most }
func (s span) plus(t span) span           { return span{s.least + t.least, s.most + t.most} }
func oneOf(ns ...uint64) func(uint64) bool {
	return func(n uint64) bool { return slices.Contains(ns, n) }
}

func (s span) String() string {
	if s.least == s.most {
		return fmt.Sprint(s.least)
	}
	return fmt.Sprintf("%d to %d", s.least, s.most)
}

// table is what the counters of a kind of device are called.
type table map[quantity][]string

// values are the counters of a device at some time.
type values map[string]uint64

// look returns the counters of the device.
func look(r *rig.Rig) values {
	v := make(values)
	for _, c := range r.Device.Counters() {
		v[c.Name] = c.Value
	}
	return v
}

// found is what the record says has happened. A quantity that is not in it has not.
type found map[quantity]span

// agree ends the case unless every counter of the table that is judged, and that the
// device has, went as far as was found. strange are quantities of which another set of
// numbers is true.
func (t table) agree(r *rig.Rig, judged func(quantity) bool, before, after values, f found, strange map[quantity]func(uint64) bool) {
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
			if fits := strange[q]; fits != nil {
				r.Check(fits(delta), fmt.Sprintf("%s up by what passed on the wire, in some unit", name), "up by %d", delta)
				continue
			}
			r.Check(f[q].has(delta), fmt.Sprintf("%s up by %v (%s)", name, f[q], q), "up by %d", delta)
		}
	}
}

// stuck are the defects of a case that is about these quantities: a device on which
// one of the counters, as it calls them first, stands still.
func (t table) stuck(qs ...quantity) (defects []string) {
	for _, q := range qs {
		defects = append(defects, "CounterStuck="+t[q][0])
	}
	return defects
}

// has ends the case as unsupported if the device has none of the counters that it is
// about.
func (t table) has(r *rig.Rig, qs ...quantity) {
	now := look(r)
	for _, q := range qs {
		for _, name := range t[q] {
			if _, ok := now[name]; ok {
				return
			}
		}
	}
	rig.Abort(fmt.Errorf("the device has none of the counters that the case is about: %w", conformance.ErrBenchCannot))
}
