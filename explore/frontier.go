package explore

import (
	"sync"
	"sync/atomic"
)

// work is a state with alternatives that nobody explores yet.
type work struct {
	trail []taken
	frame
}

// frontier is the work that the workers share. Workers that have none wait for others to give some.
type frontier struct {
	mu      sync.Mutex
	changed sync.Cond
	all     []work
	workers int
	waiting int
	wanted  atomic.Int32 // number of waiting workers without work to take
	stopped bool
}

func newFrontier(workers int, all []work) *frontier {
	f := &frontier{workers: workers, all: all}
	f.changed.L = &f.mu
	return f
}

// give adds work.
func (f *frontier) give(w work) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, w)
	f.update()
}

// take waits for work. ok is false if none is left or the exploration is stopped.
func (f *frontier) take() (w work, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting++
	f.update()
	for len(f.all) == 0 && f.waiting < f.workers && !f.stopped {
		f.changed.Wait()
	}
	if len(f.all) == 0 || f.stopped {
		return w, false
	}
	last := len(f.all) - 1
	w, f.all[last] = f.all[last], w
	f.all = f.all[:last]
	f.waiting--
	f.update()
	return w, true
}

// stop makes take return.
func (f *frontier) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopped = true
	f.update()
}

// update wakes the waiting workers. The caller holds the lock.
func (f *frontier) update() {
	f.wanted.Store(int32(f.waiting - len(f.all)))
	f.changed.Broadcast()
}
