package mpi

import (
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// The carrier coalesces small sends and defers the last packet of a burst. Calls that
// progress flush it; a task does so while the program computes.

const (
	// flushInterval limits how long a deferred message waits while the program computes.
	flushInterval = 50 * time.Microsecond
	// maxIdleFlushes is the number of flushes without deferred messages after which the
	// task ends.
	maxIdleFlushes = 10
)

// FlushNeeded implements Upper: it starts flushTask, unless that runs already.
func (k *rank) FlushNeeded() {
	if !k.flushTaskRunning {
		k.flushTaskRunning = true
		k.env.Go("flush", k.flushTask)
	}
}

// flushTask flushes deferred messages periodically while the program computes. It ends when it
// has found none maxIdleFlushes times in a row.
func (k *rank) flushTask(p verbs.Proc) {
	for idle := 0; idle < maxIdleFlushes; {
		p.Sleep(flushInterval)
		if !k.mu.TryLock() {
			continue // the program is in a call
		}
		switch {
		case k.ended.Load():
			idle = maxIdleFlushes
		case k.carrier.Flush():
			idle = 0
		default:
			idle++
		}
		k.flushTaskRunning = idle < maxIdleFlushes
		k.mu.Unlock()
	}
}
