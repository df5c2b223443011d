package process

import (
	"testing"
	"time"
)

func TestOthersShareExcludesOwnIdleAndInterruptTime(t *testing.T) {
	begin := time.Now()
	from := CPUSample{At: begin, CPUs: 2, Busy: 50 * time.Second, All: 100 * time.Second, Own: 10 * time.Second}
	for _, c := range []struct {
		name           string
		busy, all, own time.Duration // in 10 s of two CPUs
		want           float64
	}{
		{"all idle", 0, 20 * time.Second, 0, 0},
		{"all own", 20 * time.Second, 20 * time.Second, 20 * time.Second, 0},
		{"half own, half idle", 10 * time.Second, 20 * time.Second, 10 * time.Second, 0},
		{"half own, half others", 20 * time.Second, 20 * time.Second, 10 * time.Second, 0.5},
		{"a quarter in interrupts", 15 * time.Second, 20 * time.Second, 15 * time.Second, 0},
		{"the machine stopped for half of the time", 5 * time.Second, 10 * time.Second, 5 * time.Second, 0.5},
		{"own time is finer than ticks", 9 * time.Second, 20 * time.Second, 10 * time.Second, 0},
	} {
		to := CPUSample{At: begin.Add(10 * time.Second), CPUs: 2, Busy: from.Busy + c.busy, All: from.All + c.all, Own: from.Own + c.own}
		if got := OthersShare(from, to); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	limited := CPUSample{At: begin.Add(10 * time.Second), CPUs: 2, Busy: from.Busy + 5*time.Second, All: from.All + 20*time.Second, Own: from.Own + 5*time.Second, Throttled: 15 * time.Second}
	if got := OthersShare(from, limited); got != 0.75 {
		t.Errorf("idle, with a CPU limit of a quarter: %v", got)
	}
	if got := OthersShare(from, from); got != 0 {
		t.Errorf("no time between samples: %v", got)
	}
}
