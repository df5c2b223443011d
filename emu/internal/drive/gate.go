package drive

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
)

// NewCond returns a place to wait.
func (r *Real) NewCond(fmt.Stringer) Cond { return &realGate{r: r} }

type realGate struct {
	r       *Real
	count   uint64        // notifications so far
	leads   bool          // who waits here asleep at the lead
	waiting chan struct{} // closed by Notify; nil if nobody waits for it
}

// Notify wakes all who wait.
func (g *realGate) Notify() {
	g.count++
	if g.leads {
		g.r.net.wake() // another has taken in what would have woken it
	}
	if g.waiting != nil {
		close(g.waiting)
		g.waiting = nil
	}
}

// Wait waits at the lead if it can have it, otherwise for who has.
func (g *realGate) Wait(timeout time.Duration) bool {
	r := g.r
	until := mono.Never
	if timeout >= 0 {
		until = r.Now().Add(timeout)
	}
	// Whoever has the lead keeps it as long as he waits. To put it back for the next
	// turn would hand it to another who waits, and who would do the same.
	leads := false
	defer func() {
		if leads {
			r.lead <- struct{}{}
		}
	}()
	for before := g.count; g.count == before; {
		now := r.Now()
		r.visited = now
		if r.owed {
			r.PollEmpty() // the program has no more to say for now
			continue
		}
		if r.full && r.retryAt <= now {
			if r.PollEmpty(); g.count != before {
				return true
			}
		}
		if now >= until || r.closed {
			return false
		}
		if !leads {
			select {
			case <-r.lead:
				leads = true
			default:
				leads = g.follow(until.Sub(now))
				continue
			}
		}
		g.leads = true
		r.sleep(min(r.untilNext(now), until.Sub(now)))
		g.leads = false
		r.Progress()
		if g.count != before {
			r.PollFound()
		}
		if r.engine.Deadline() <= r.visited {
			// What this gives to send is owed, and may wait for the program too.
			r.engine.Tick(r.visited)
			r.owed = true
		}
	}
	return true
}

// follow waits until notified, or until the lead is free, which it takes and
// reports.
func (g *realGate) follow(d time.Duration) (leads bool) {
	r := g.r
	if r.ownLead {
		r.net.wake() // we will lead instead
	}
	if g.waiting == nil {
		g.waiting = make(chan struct{})
	}
	waiting := g.waiting
	r.mu.Unlock()
	t := time.NewTimer(d)
	select {
	case <-waiting:
	case <-r.lead:
		leads = true
	case <-t.C:
	case <-r.done:
	}
	t.Stop()
	r.lock()
	return leads
}
