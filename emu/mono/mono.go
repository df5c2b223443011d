// Package mono is the only time an engine sees: a count of nanoseconds that
// never goes back. The driver of an engine provides the count: from a simulated
// world, a test's local variable or the machine's clock.
package mono

import (
	"math"
	"time"
)

// Time is a point in time, in nanoseconds since the epoch of a clock: the real one of a device, or
// that of a simulated world. Times of different clocks do not compare.
type Time int64

// Never is a deadline that is never reached.
const Never Time = math.MaxInt64

// Add returns the time d after t: Never if t is Never, or if d is positive and the sum overflows.
func (t Time) Add(d time.Duration) Time {
	sum := t + Time(d)
	if t == Never || (d > 0 && sum < t) {
		return Never
	}
	return sum
}

// Sub returns the duration from u to t, negative if u is later.
func (t Time) Sub(u Time) time.Duration { return time.Duration(t - u) }

// Before reports whether t is earlier than u.
func (t Time) Before(u Time) bool { return t < u }

// String returns "never", or t as a duration since the epoch of its clock.
func (t Time) String() string {
	if t == Never {
		return "never"
	}
	return time.Duration(t).String()
}
