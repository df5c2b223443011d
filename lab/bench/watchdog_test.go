package bench

import (
	"testing"
	"time"
)

func TestWatchdogEndsCasesWithoutProgress(t *testing.T) {
	const limit = 2 * time.Minute
	for _, c := range []struct {
		name    string
		replies []uint64 // at the end of each limit
		hungAt  int      // limits that have passed; 0 if the case does not hang
	}{
		{"no verb call returns", []uint64{5}, 1},
		{"verb calls return", []uint64{6, 7, 8, 9}, 0},
		{"verb calls return at first", []uint64{6, 7, 7}, 3},
		{"the case never ends", []uint64{6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			start := time.Second
			w := newWatchdog(limit, start, 5)
			hungAt := 0
			for i, n := range c.replies {
				if w.hung(start+time.Duration(i+1)*limit, n) {
					hungAt = i + 1
					break
				}
			}
			if hungAt != c.hungAt {
				t.Errorf("the case hangs after %d limits, want %d", hungAt, c.hungAt)
			}
		})
	}
}
