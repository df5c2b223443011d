package judge

import (
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
)

func TestCheckRejectsHistoriesThatAreNotLinearizable(t *testing.T) {
	const ms = time.Millisecond
	add := func(old uint64, from, to time.Duration) atomicOp {
		return atomicOp{Add: 1, Old: old, Call: from * ms, Return: to * ms}
	}
	swap := func(compare, by, old uint64, from, to time.Duration) atomicOp {
		return atomicOp{Swap: true, Compare: compare, New: by, Old: old, Call: from * ms, Return: to * ms}
	}
	for name, c := range map[string]struct {
		history []atomicOp
		sound   bool
	}{
		"sequential":              {[]atomicOp{add(0, 0, 1), add(1, 2, 3), add(2, 4, 5)}, true},
		"concurrent":              {[]atomicOp{add(1, 0, 5), add(0, 0, 5)}, true},
		"lost update":             {[]atomicOp{add(0, 0, 5), add(0, 0, 5)}, false},
		"executed twice":          {[]atomicOp{add(0, 0, 1), add(2, 2, 3)}, false},
		"returns a future value":  {[]atomicOp{add(1, 0, 1), add(0, 2, 3)}, false},
		"successful swap":         {[]atomicOp{add(0, 0, 1), swap(1, 7, 1, 2, 3), add(7, 4, 5)}, true},
		"failed swap":             {[]atomicOp{swap(1, 7, 0, 0, 1), add(0, 2, 3)}, true},
		"failed swap with effect": {[]atomicOp{swap(1, 7, 0, 0, 1), add(7, 2, 3)}, false},
		"two successful swaps":    {[]atomicOp{swap(0, 1, 0, 0, 5), swap(0, 2, 0, 0, 5)}, false},
		"two words":               {[]atomicOp{add(0, 0, 1), {Word: 1, Add: 1, Call: 2 * ms, Return: 3 * ms}}, true},
	} {
		err := checkLinearizable(c.history)
		if (err == nil) != c.sound || err != nil && !conformance.IsViolation(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
