package cputime

import (
	"testing"
	"time"
)

func TestOnlyUsableProcessorsCount(t *testing.T) {
	const stat = `cpu  6 6 6 6 6 6 6 6 0 0
cpu0 1 2 3 4 5 6 7 8 0 0
cpu1 100 100 100 100 100 100 100 100 0 0
cpu2 1 1 1 1 1 1 1 1 0 0
intr 1 2 3 4 5 6 7 8 9 10
`
	var s Sample
	s.addCPUs([]byte(stat), func(cpu int) bool { return cpu != 1 })
	if want := (Sample{CPUs: 2, Busy: 180 * time.Millisecond, All: 440 * time.Millisecond}); s != want {
		t.Errorf("%+v, want %+v", s, want)
	}
}

func TestSchedstatHasTimeOnProcessorThenInQueue(t *testing.T) {
	if u, ok := parseSchedstat([]byte("12 34 5\n")); !ok || u != (Usage{12, 34}) {
		t.Errorf("%+v, %v", u, ok)
	}
	for _, bad := range []string{"", "12", "a b c"} {
		if u, ok := parseSchedstat([]byte(bad)); ok {
			t.Errorf("%q: %+v", bad, u)
		}
	}
}

// A process that computes has run, and the processors have been busy, for the time
// that the kernel says it has used.
func TestOwnTimeIsCounted(t *testing.T) {
	before, ok := Now()
	used, ok2 := Self()
	if !ok || !ok2 {
		t.Skip("this kernel keeps neither /proc/stat nor schedstat")
	}
	for {
		now, _ := Now()
		if u, _ := Self(); now.Own-before.Own > 50*time.Millisecond && u.Ran-used.Ran > 40*time.Millisecond && now.All > before.All {
			return
		}
	}
}
