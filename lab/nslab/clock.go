package nslab

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// startOrder tells a rank to begin, and when the scenario's time 0 is on the
// clock that all processes of a machine share: "start 1234567890".
const startOrder = "start "

func orderStart(epoch time.Duration) string { return startOrder + strconv.FormatInt(int64(epoch), 10) }

func parseStart(order string) (epoch time.Duration, err error) {
	n, err := strconv.ParseInt(strings.TrimPrefix(order, startOrder), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("order %q: %w", order, err)
	}
	return time.Duration(n), nil
}

// clock is a verbs.Proc in real time whose world began at a time that all ranks
// agree on.
type clock struct{ epoch time.Time }

func newClock(epoch time.Duration) clock { return clock{time.Now().Add(epoch - monotonic())} }

// Now is the scenario's time.
func (c clock) Now() time.Duration { return time.Since(c.epoch) }

// Sleep waits.
func (clock) Sleep(d time.Duration) { time.Sleep(d) }

// Compute keeps the processor busy.
func (clock) Compute(d time.Duration) {
	for began := time.Now(); time.Since(began) < d; {
	}
}
