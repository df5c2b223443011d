package sim

import (
	"fmt"
	"slices"
	"time"
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

// Wait parks the program until s is notified or timeout has passed; a negative
// timeout means forever. It reports whether s was notified. reason is formatted
// only if the wait is reported in an error.
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

// Waiting returns the number of waiting programs.
func (s *Signal) Waiting() int { return len(s.waiters) }

func (s *Signal) remove(p *Proc) {
	if i := slices.Index(s.waiters, p); i >= 0 {
		s.waiters = slices.Delete(s.waiters, i, i+1)
	}
}

func (p *Proc) wakeNotified() {
	p.signal, p.notified = nil, true
	p.timer.Stop()
	p.wake()
}
