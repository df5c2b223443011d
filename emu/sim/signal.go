package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
)

// Signal is a condition variable for programs, notified by a handler or another
// program. It carries no state: check the condition before and after each Wait.
// The zero value is ready to use.
type Signal struct {
	waiters []*Proc // oldest first
}

// WaitReason is a constant text that describes a wait in a DeadlockError.
type WaitReason string

func (s WaitReason) String() string { return string(s) }

// Wait blocks the program until s is notified or timeout has passed (never if negative), and
// reports whether s was notified. reason is formatted only if the wait is reported in an error.
func (p *Proc) Wait(s *Signal, reason fmt.Stringer, timeout time.Duration) bool {
	p.checkRunning("Wait")
	p.notified = false
	p.signal = s
	s.waiters = append(s.waiters, p)
	if timeout >= 0 {
		p.timer.Reset(p.w.now.Add(timeout))
	}
	p.wait(reason)
	return p.notified
}

// Notify wakes one waiting program, if any; World.Choose picks it.
func (s *Signal) Notify() {
	n := len(s.waiters)
	if n == 0 {
		return
	}
	i := s.waiters[0].w.Choose("notify", n)
	p := s.waiters[i]
	s.waiters = slices.Delete(s.waiters, i, i+1)
	p.wakeNotified()
}

// Broadcast wakes all waiting programs.
func (s *Signal) Broadcast() {
	for _, p := range s.waiters {
		p.wakeNotified()
	}
	clear(s.waiters)
	s.waiters = s.waiters[:0]
}

// wakeNotified ends the Wait of p, which returns true.
func (p *Proc) wakeNotified() {
	p.signal, p.notified = nil, true
	p.timer.Stop()
	p.wake()
}

// notQueued is the position of a timer that has no entry in the heap.
const notQueued = -1

// Timer is a deadline that is reset often, as a retransmission timer is.
// Postponing or stopping it does not touch the heap until the old deadline
// comes up. It has at most one heap entry.
type Timer struct {
	w   *World
	h   Handler
	arg uint64
	due mono.Time // Never when not armed
	seq uint64    // order among timers with the same deadline, set by Reset
	pos int32
}

// NewTimer returns a stopped timer that will run h with arg.
func (w *World) NewTimer(h Handler, arg uint64) *Timer {
	t := new(Timer)
	t.init(w, h, arg)
	return t
}

func (t *Timer) init(w *World, h Handler, arg uint64) {
	*t = Timer{w: w, h: h, arg: arg, due: mono.Never, pos: notQueued}
}

// Deadline returns when the timer fires; Never if it is stopped.
func (t *Timer) Deadline() mono.Time { return t.due }

// Reset arms the timer for at, replacing any earlier deadline. A time in the past means now, after
// the events already due; Never stops the timer. Resetting to the current deadline keeps the order
// among events of the same time.
func (t *Timer) Reset(at mono.Time) {
	if at == mono.Never || t.w.ended { // the deferred calls of programs may arm it after the end
		t.due = mono.Never
		return
	}
	at = max(at, t.w.now)
	if at == t.due {
		return
	}
	q := &t.w.queue
	t.due, t.seq = at, q.nextSeq()
	if t.pos == notQueued {
		s := q.takeSlot()
		q.slots[s] = slot{timer: t}
		q.insert(entry{entryOrder{at, t.seq}, s | timerBit})
		return
	}
	e := q.heap[t.pos]
	if at < e.at { // for a later deadline, peek moves the entry when it is due
		e.at, e.seq = at, t.seq
		q.up(int(t.pos), e)
	}
}

// Stop disarms the timer.
func (t *Timer) Stop() { t.due = mono.Never }
