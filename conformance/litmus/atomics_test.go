package litmus

import (
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
)

// A history that can be ordered, and histories that cannot.
func TestCheck(t *testing.T) {
	const ms = time.Millisecond
	add := func(old uint64, from, to time.Duration) Atomic {
		return Atomic{Add: 1, Old: old, Call: from * ms, Return: to * ms}
	}
	swap := func(compare, by, old uint64, from, to time.Duration) Atomic {
		return Atomic{Swap: true, Compare: compare, New: by, Old: old, Call: from * ms, Return: to * ms}
	}
	for name, c := range map[string]struct {
		history []Atomic
		sound   bool
	}{
		"one after the other":        {[]Atomic{add(0, 0, 1), add(1, 2, 3), add(2, 4, 5)}, true},
		"at a time, either way":      {[]Atomic{add(1, 0, 5), add(0, 0, 5)}, true},
		"one is lost":                {[]Atomic{add(0, 0, 5), add(0, 0, 5)}, false},
		"one counts twice":           {[]Atomic{add(0, 0, 1), add(2, 2, 3)}, false},
		"the later one goes first":   {[]Atomic{add(1, 0, 1), add(0, 2, 3)}, false},
		"a swap that finds it":       {[]Atomic{add(0, 0, 1), swap(1, 7, 1, 2, 3), add(7, 4, 5)}, true},
		"a swap that does not":       {[]Atomic{swap(1, 7, 0, 0, 1), add(0, 2, 3)}, true},
		"a swap that should not":     {[]Atomic{swap(1, 7, 0, 0, 1), add(7, 2, 3)}, false},
		"two winners":                {[]Atomic{swap(0, 1, 0, 0, 5), swap(0, 2, 0, 0, 5)}, false},
		"other words have their own": {[]Atomic{add(0, 0, 1), {Word: 1, Add: 1, Call: 2 * ms, Return: 3 * ms}}, true},
	} {
		err := Check(c.history)
		if (err == nil) != c.sound || err != nil && !conformance.IsViolation(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
