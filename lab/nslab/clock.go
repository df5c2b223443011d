package nslab

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// startCommand starts a rank. Its argument is time 0 of the scenario on
// CLOCK_MONOTONIC: "start 1234567890".
const startCommand = "start "

func formatStart(epoch time.Duration) string {
	return startCommand + strconv.FormatInt(int64(epoch), 10)
}

func parseStart(command string) (epoch time.Duration, err error) {
	n, err := strconv.ParseInt(strings.TrimPrefix(command, startCommand), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("command %q: %w", command, err)
	}
	return time.Duration(n), nil
}

// clock is a verbs.Proc in real time, with the same time 0 for all ranks.
type clock struct{ epoch time.Time }

func newClock(epoch time.Duration) clock { return clock{time.Now().Add(epoch - monotonic())} }

// Now returns the time of the scenario.
func (c clock) Now() time.Duration { return time.Since(c.epoch) }

// Sleep implements verbs.Proc.
func (clock) Sleep(d time.Duration) { time.Sleep(d) }

// spinTime is how long Compute spins at the end, to cover late timers.
const spinTime = 100 * time.Microsecond

// Compute simulates a computation of duration d. It sleeps for most of it, because
// the hosts share the CPUs of this machine, and real hosts do not.
func (clock) Compute(d time.Duration) {
	began := time.Now()
	if d > spinTime {
		time.Sleep(d - spinTime)
	}
	for time.Since(began) < d {
	}
}
