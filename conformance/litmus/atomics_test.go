package litmus

import (
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
)

func TestCheckRejectsHistoriesThatAreNotLinearizable(t *testing.T) {
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
		"sequential":              {[]Atomic{add(0, 0, 1), add(1, 2, 3), add(2, 4, 5)}, true},
		"concurrent":              {[]Atomic{add(1, 0, 5), add(0, 0, 5)}, true},
		"lost update":             {[]Atomic{add(0, 0, 5), add(0, 0, 5)}, false},
		"executed twice":          {[]Atomic{add(0, 0, 1), add(2, 2, 3)}, false},
		"returns a future value":  {[]Atomic{add(1, 0, 1), add(0, 2, 3)}, false},
		"successful swap":         {[]Atomic{add(0, 0, 1), swap(1, 7, 1, 2, 3), add(7, 4, 5)}, true},
		"failed swap":             {[]Atomic{swap(1, 7, 0, 0, 1), add(0, 2, 3)}, true},
		"failed swap with effect": {[]Atomic{swap(1, 7, 0, 0, 1), add(7, 2, 3)}, false},
		"two successful swaps":    {[]Atomic{swap(0, 1, 0, 0, 5), swap(0, 2, 0, 0, 5)}, false},
		"two words":               {[]Atomic{add(0, 0, 1), {Word: 1, Add: 1, Call: 2 * ms, Return: 3 * ms}}, true},
	} {
		err := Check(c.history)
		if (err == nil) != c.sound || err != nil && !conformance.IsViolation(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
