package shmlink

import (
	"runtime"
	"sync/atomic"
	"time"
)

// sleepState is the word in the memory of a cable on which the consumer of a port sleeps.
type sleepState struct{ word *atomic.Uint32 }

// States of a consumer. Only the wake-up of a sleeping one needs a system call.
const (
	awake = iota
	asleep
	woken
)

// maxSleep bounds a sleep: a producer may die between writing a record and waking the consumer.
const maxSleep = time.Second

// sleep blocks until readable returns true after a producer has published a record, until d has
// passed (not at all if negative) or wake is called. It may return early.
func (s sleepState) sleep(d time.Duration, readable func() bool) {
	if !s.word.CompareAndSwap(awake, asleep) {
		s.word.Store(awake) // wake was called before this sleep
		return
	}
	if !readable() { // a producer that publishes from here on sees the state asleep
		if d < 0 || d > maxSleep {
			d = maxSleep
		}
		if d != 0 {
			// A goroutine that has just become runnable may be queued on this P, which blocks in the
			// system call: it would wait for sysmon, up to 10 ms.
			runtime.Gosched()
		}
		wait(s.word, asleep, d)
	}
	s.word.Store(awake)
}

// wake ends the current sleep or else the next one.
func (s sleepState) wake() {
	if s.word.Swap(woken) == asleep {
		wakeWaiter(s.word)
	}
}

// wakeIfAsleep ends the current sleep, if there is one, and reports whether there was.
func (s sleepState) wakeIfAsleep() bool {
	if s.word.Load() != asleep || !s.word.CompareAndSwap(asleep, woken) {
		return false
	}
	wakeWaiter(s.word)
	return true
}
