package nslab

import (
	"time"

	"golang.org/x/sys/unix"
)

// monotonic is the clock that all processes of the machine share.
func monotonic() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // cannot fail on Linux
	return time.Duration(ts.Nano())
}
