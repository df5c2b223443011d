package traffic

import "github.com/fabrictest/fabrictest/verbs"

// CountersSince returns the increments of device counters.
func CountersSince(before, now []verbs.Counter) []verbs.Counter {
	old := make(map[string]uint64, len(before))
	for _, c := range before {
		old[c.Name] = c.Value
	}
	since := make([]verbs.Counter, len(now))
	for i, c := range now {
		since[i] = verbs.Counter{Name: c.Name, Value: c.Value - old[c.Name]}
	}
	return since
}
