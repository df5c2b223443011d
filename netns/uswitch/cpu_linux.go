package uswitch

import (
	"time"

	"golang.org/x/sys/unix"
)

// cpuClock adds up the CPU time of the threads of Run.
type cpuClock struct {
	tid   int // 0 while stopped
	since time.Duration
	total time.Duration
}

// start starts counting the CPU time of the calling thread.
func (c *cpuClock) start() {
	c.tid = unix.Gettid()
	c.since = threadTime(c.tid)
}

// stop stops counting; used keeps its value.
func (c *cpuClock) stop() { c.total, c.tid = c.used(), 0 }

// used returns the CPU time so far, of earlier threads and of the current one if it is running.
func (c *cpuClock) used() time.Duration {
	if c.tid == 0 {
		return c.total
	}
	return c.total + threadTime(c.tid) - c.since
}

// threadTime returns the CPU time of a thread of this process; 0 if the thread has exited.
func threadTime(tid int) time.Duration {
	// The clock ID is that of pthread_getcpuclockid.
	const perThread, scheduled = 4, 2 // CPUCLOCK_PERTHREAD_MASK, CPUCLOCK_SCHED
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^tid<<3|perThread|scheduled), &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}
