package drive

import (
	"testing"
	"time"
)

func TestYieldPolicyAdaptsToSharedProcessor(t *testing.T) {
	var y yieldPolicy
	adapt := func(took time.Duration, times int) uint32 {
		for range times {
			y.adapt(y.shift.Load(), took)
		}
		return yieldInterval >> y.shift.Load()
	}
	for _, c := range []struct {
		sharedWith string
		took       time.Duration
		times      int
		interval   uint32
	}{
		{"no program", 300 * time.Nanosecond, 10, 64},
		{"a spinning program", 5 * time.Microsecond, 1, 32},
		{"a spinning program", 5 * time.Microsecond, 10, 2},
		{"a computing program", 3 * time.Millisecond, 2, 8},
		{"no program", 300 * time.Nanosecond, 10, 64},
	} {
		if got := adapt(c.took, c.times); got != c.interval {
			t.Errorf("%d yields to %s: %d polls between yields, want %d", c.times, c.sharedWith, got, c.interval)
		}
	}
}

func TestYieldPolicyCountsConsecutiveEmptyPolls(t *testing.T) {
	var y yieldPolicy
	for range 3 * yieldInterval {
		y.emptyPolls.Store(yieldInterval - 2)
		y.pollEmpty()
		y.pollFound()
	}
	if n := y.emptyPolls.Load(); n != 0 {
		t.Errorf("%d empty polls counted", n)
	}
}
