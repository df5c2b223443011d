package drive

import (
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
)

// The background goroutine keeps a device going while no application looks: it
// answers the network, and keeps deadlines that whoever leads sleeps through.
// While applications look it only takes naps.

// background leads while no application does.
func (r *Real) background() {
	defer close(r.gone)
	var still watch
	for {
		r.lock()
		if r.closed {
			r.mu.Unlock()
			return
		}
		now := r.Now()
		active, deep := now.Sub(r.visited) < idle, still.look(r)
		if !active && r.owed || r.engine.Deadline() <= now.Add(-idle) {
			r.silent()
			r.pump(now) // a leader may sleep, and need not wake for it
		}
		r.dozing = deep
		r.mu.Unlock()
		switch {
		case deep:
			r.doze()
		case active || !r.tryLead(): // whoever looks at the network also keeps the deadlines
			r.pause(nap)
		}
	}
}

// watch is how a background goroutine notices that nothing goes on.
type watch struct {
	visited mono.Time
	looks   int // in a row at the same leader's sleep
}

// look reports whether a leader has long been asleep, and will wake by itself
// for whatever there is to do. The lock is held.
func (w *watch) look(r *Real) bool {
	if r.visited != w.visited || r.leadTill == 0 || r.engine.Deadline() < r.leadTill || r.owed {
		w.visited, w.looks = r.visited, 0
		return false
	}
	w.looks++
	return w.looks > deepAfter
}

// doze sleeps until it is roused.
func (r *Real) doze() {
	select {
	case <-r.rouse:
	case <-r.done:
	}
}

// wakeDozer rouses a background goroutine that dozes: whoever led is awake, or
// has a deadline that he will sleep through. The lock is held.
func (r *Real) wakeDozer() {
	if r.dozing {
		r.dozing = false
		r.rouse <- struct{}{}
	}
}

// tryLead leads, if nobody does, until an application looks. After an arrival it
// lingers: see there.
func (r *Real) tryLead() bool {
	select {
	case <-r.lead:
	default:
		return false
	}
	r.lock()
	vain := linger // looks since anything arrived
	for {
		if r.turn() {
			vain = 0
		}
		if r.closed || r.Now().Sub(r.visited) < idle {
			break
		}
		if vain++; vain <= linger {
			r.mu.Unlock()
			yield() // others may want the processor, and the lock
			r.lock()
			continue
		}
		r.ownLead = true
		r.sleep(r.untilNext(r.Now()))
		r.ownLead = false
	}
	r.mu.Unlock()
	r.lead <- struct{}{}
	return true
}

func (r *Real) pause(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.done:
	}
}
