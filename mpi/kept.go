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
	keptFor = 50 * time.Microsecond
	// keptAgain is after how often in vain the task ends.
	keptAgain = 10
)

// Kept implements Upper.
func (k *rank) FlushNeeded() {
	if !k.flushing {
		k.flushing = true
		k.env.Go("flush", k.flushKept)
	}
}

// flushKept is the task.
func (k *rank) flushKept(p verbs.Proc) {
	for vain := 0; vain < keptAgain; {
		p.Sleep(keptFor)
		if !k.mu.TryLock() {
			continue // the program is in a call
		}
		switch {
		case k.ended.Load():
			vain = keptAgain
		case k.carrier.Flush():
			vain = 0
		default:
			vain++
		}
		k.flushing = vain < keptAgain
		k.mu.Unlock()
	}
}
