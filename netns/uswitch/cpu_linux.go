package uswitch

import (
	"time"

	"golang.org/x/sys/unix"
)

// cpuClock adds up the processor time of the threads that Run ran on.
type cpuClock struct {
	tid   int // 0: none now
	since time.Duration
	total time.Duration
}

// start begins to count the calling thread's time.
func (c *cpuClock) start() {
	c.tid = unix.Gettid()
	c.since = threadTime(c.tid)
}

func (c *cpuClock) stop() { c.total, c.tid = c.used(), 0 }

func (c *cpuClock) used() time.Duration {
	if c.tid == 0 {
		return c.total
	}
	return c.total + threadTime(c.tid) - c.since
}

// threadTime reads the clock that counts a thread's processor time, which any
// thread of the process may.
func threadTime(tid int) time.Duration {
	const perThread, scheduled = 4, 2
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^tid<<3|perThread|scheduled), &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}
