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

// awake is how much of a computation is spent on the processor: what a timer may
// be late by.
const awake = 100 * time.Microsecond

// Compute takes as long as a computation would. It sleeps for all but the last
// moment of it: here many hosts share a few processors, and would keep each other
// from them, which the computers that they stand for do not.
func (clock) Compute(d time.Duration) {
	began := time.Now()
	if d > awake {
		time.Sleep(d - awake)
	}
	for time.Since(began) < d {
	}
}
