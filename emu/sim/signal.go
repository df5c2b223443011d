package sim

import (
	"fmt"
	"slices"
	"time"
)

// Signal is what programs wait for: a condition that a handler or another
// program announces. The zero value is ready to use. Like a condition variable
// it carries no state: look, and wait if what you look for is not there.
type Signal struct {
	waiters []*Proc // oldest first
}

// WaitReason is a reason to wait that is plain text.
type WaitReason string

func (s WaitReason) String() string { return string(s) }

// Wait parks the program until s is notified, or until timeout has passed if it
// is not negative. It reports whether s was notified. what appears in the report
// of a deadlock, and is only asked for its text there.
func (p *Proc) Wait(s *Signal, what fmt.Stringer, timeout time.Duration) bool {
	p.mustRun("Wait")
	p.notified = false
	p.signal = s
	s.waiters = append(s.waiters, p)
	if timeout >= 0 {
		p.timer.Reset(p.w.now.Add(timeout))
	}
	p.wait(what)
	return p.notified
}

// Notify wakes one of the programs that wait, if any; the world chooses which.
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

// Broadcast wakes all programs that wait.
func (s *Signal) Broadcast() {
	for _, p := range s.waiters {
		p.wakeNotified()
	}
	clear(s.waiters)
	s.waiters = s.waiters[:0]
}

// Waiting returns how many programs wait.
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
