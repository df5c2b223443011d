package defects

import (
	"slices"
	"sync"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// WrapDevice returns device d with defects in its verbs; d itself if there are none. Between a
// program and d, it changes work requests, completions, attributes and events. It works on a device
// of any transport. now returns the time, real or simulated, since any fixed instant.
//
// The result may be used from several goroutines and in a simulated world, like d. Methods without
// a comment here differ from those of d in the handles only: the program sees queue pairs,
// completion queues and channels of the defective device.
func WrapDevice(d verbs.Context, defects VerbDefects, now func() time.Duration) verbs.Context {
	if defects == (VerbDefects{}) {
		return d
	}
	return &device{Context: d, defects: defects, now: now, handles: map[any]any{}}
}

// device implements verbs.Context.
type device struct {
	verbs.Context
	defects VerbDefects
	now     func() time.Duration

	mu      sync.Mutex  // not held during calls to the device, which may wait
	handles map[any]any // the open queuePair or completionQueue of each QP and CQ of the device
}

// addHandle records the handle that the program has for a QP or CQ of the device.
func (d *device) addHandle(inner, handle any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.handles[inner] = handle
}

// removeHandle removes the handle that the program has for inner, a QP or CQ of the device, unless
// closing inner failed with closeErr. It returns closeErr.
func (d *device) removeHandle(inner any, closeErr error) error {
	if closeErr == nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.handles, inner)
	}
	return closeErr
}

// handleOf returns the handle that the program has for inner, a QP or CQ of the device. It returns
// inner itself if the program has no handle for it, for example because inner is nil.
func handleOf[T any](d *device, inner T) T {
	d.mu.Lock()
	defer d.mu.Unlock()
	if h, ok := d.handles[inner]; ok {
		return h.(T)
	}
	return inner
}

// innerOf returns the device's object behind a handle of a defective device; other objects unchanged.
func innerOf[T any](handle T) T {
	if h, ok := any(handle).(interface{ inner() T }); ok {
		return h.inner()
	}
	return handle
}

// qpByNumber returns the handle that the program has for the open QP with this number, or nil.
func (d *device) qpByNumber(num verbs.QPN) *queuePair {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, h := range d.handles {
		if q, ok := h.(*queuePair); ok && q.QPN() == num {
			return q
		}
	}
	return nil
}

// WaitAsync returns the next event that no defect hides, with the program's handles of its QP and
// CQ, or an error when the timeout has expired. A negative timeout never expires.
func (d *device) WaitAsync(timeout time.Duration) (verbs.AsyncEvent, error) {
	end := d.now() + timeout
	for {
		left := timeout
		if timeout >= 0 {
			left = max(0, end-d.now())
		}
		e, err := d.Context.WaitAsync(left)
		if err == nil && d.defects.hides(e.Type) {
			continue
		}
		e.QP, e.CQ = handleOf(d, e.QP), handleOf(d, e.CQ)
		return e, err
	}
}

// hides reports whether a defect suppresses asynchronous events of this type.
func (d *VerbDefects) hides(e verbs.AsyncEventType) bool {
	switch e {
	case verbs.EventCommEst, verbs.EventQPAccessErr, verbs.EventQPReqErr:
		return d.NoQPEvents
	case verbs.EventQPLastWQEReached:
		return d.NoLastWQEEvent
	case verbs.EventSQDrained:
		return d.SQNeverDrains
	}
	return false
}

// Counters returns the device's counters, with 0 for the one that the defect CounterStuck names.
func (d *device) Counters() []verbs.Counter {
	all := slices.Clone(d.Context.Counters())
	for i := range all {
		if all[i].Name == d.defects.CounterStuck {
			all[i].Value = 0
		}
	}
	return all
}

// CreateSRQ creates an SRQ of the device, with the device's CQ that the handle in.CQ wraps.
func (d *device) CreateSRQ(in verbs.SRQInit) (verbs.SRQ, error) {
	in.CQ = innerOf(in.CQ)
	return d.Context.CreateSRQ(in)
}
