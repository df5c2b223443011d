package verbcalls

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// Device returns d with defects; d itself if there are none. now is the time of the
// world that the device is in, counted from any moment.
func Device(d verbs.Context, q Defects, now func() time.Duration) verbs.Context {
	if q == (Defects{}) {
		return d
	}
	return &device{Context: d, q: q, now: now, defective: map[any]any{}, ever: map[string]int{}, read: map[string]uint64{}}
}

// device is a verbs.Context.
type device struct {
	verbs.Context
	q       Defects
	now     func() time.Duration
	firstQP atomic.Uint32 // the number of the first QP that was made
	closed  atomic.Bool   // Close was called

	mu        sync.Mutex // never held in a call to the sound device, which may wait
	defective map[any]any
	ever      map[string]int    // ClosedCount: how many of a kind were made
	turn      int               // CountersShuffled
	read      map[string]uint64 // CountersReset: what was read before
}

// keep remembers the defective handle for a sound one.
func (d *device) keep(sound, defective any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.defective[sound] = defective
}

// drop forgets a handle that was closed.
func (d *device) drop(sound any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.defective, sound)
}

// kept are the defective handles of a type for which f is true.
func kept[T any](d *device, f func(T) bool) (all []T) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, x := range d.defective {
		if h, ok := x.(T); ok && f(h) {
			all = append(all, h)
		}
	}
	return all
}

// ours is the defective handle for a sound one that the device tells of.
func ours[T any](d *device, sound T) T {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f, ok := d.defective[sound]; ok {
		return f.(T)
	}
	return sound
}

// its is the sound handle behind one that a program gives.
func its[T any](x T) T {
	if f, ok := any(x).(interface{ sound() T }); ok {
		return f.sound()
	}
	return x
}

// mine is the defective handle that a program gives, the zero value if it gives none
// or another device's.
func mine[T interface{ owner() *device }](d *device, x any) (none T) {
	if h, ok := x.(T); ok && h.owner() == d {
		return h
	}
	return none
}

// WaitAsync returns the next event, with our handles in it.
func (d *device) WaitAsync(timeout time.Duration) (verbs.AsyncEvent, error) {
	left := d.timeLeft(timeout)
	e, err := d.Context.WaitAsync(left())
	for err == nil && (d.q.AsyncEventsLost || d.q.hides(e.Type)) {
		e, err = d.Context.WaitAsync(left())
	}
	if d.q.AsyncNamesNothing {
		return verbs.AsyncEvent{Type: e.Type}, err
	}
	e.QP, e.CQ, e.SRQ = ours(d, e.QP), ours(d, e.CQ), ours(d, e.SRQ)
	return e, err
}

// Close closes the device, by DeviceCloseShallow and CloseLeavesWaiting when it is
// called for the second time.
func (d *device) Close() error {
	first := !d.closed.Swap(true)
	if first && (d.q.DeviceCloseShallow || d.q.CloseLeavesWaiting) {
		return nil
	}
	return d.Context.Close()
}

// timeLeft returns what is left of a timeout from now on, whenever it is asked.
// WaitImpatient leaves nothing.
func (d *device) timeLeft(timeout time.Duration) func() time.Duration {
	if d.q.WaitImpatient {
		timeout = 0
	}
	if timeout < 0 {
		return func() time.Duration { return verbs.Forever }
	}
	end := d.now() + timeout
	return func() time.Duration { return max(0, end-d.now()) }
}

// sleep waits where nothing comes, and returns ErrTimeout, or ErrClosed if the
// device was closed meanwhile.
func (d *device) sleep(timeout time.Duration) error {
	quiet, err := d.Context.CreateCompChannel()
	if err != nil {
		return err
	}
	_, err = quiet.Wait(timeout)
	_ = quiet.Close() // unless the device was
	return err
}
