package mpi

import (
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// A burst of small sends leaves in few packets, the last of which waits for what comes
// next. Mostly that is a call that looks for what has come, and has it leave. For a
// program that computes instead a task sees to it.

const (
	// keptFor is about how long a word is kept back from a peer by a program that
	// computes.
	flushInterval = 50 * time.Microsecond
	// keptAgain is after how often in vain the task ends.
	maxIdleFlushes = 10
)

// Kept implements Upper.
func (k *rank) FlushNeeded() {
	if !k.flushTaskRunning {
		k.flushTaskRunning = true
		k.env.Go("flush", k.flushTask)
	}
}

// flushKept is the task.
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
