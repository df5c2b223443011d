package ideal

import (
	"slices"

	cases "github.com/fabrictest/fabrictest/conformance/mpi"
	"github.com/fabrictest/fabrictest/mpi"
)

// request is a nonblocking operation.
type request struct {
	p          *proc
	c          *comm
	buf        []byte
	source     int // or destination
	tag        int
	box        *box // of receives
	st         mpi.Status
	err        error
	active     bool
	done       bool
	persistent bool
	freed      bool
	awaited    bool // a rank waits for it
	cancelling bool // Cancel was called, and has had no effect yet
	starts     int
	start      func(*request) error
	poll       func() bool // reports whether it is complete, if no event does
}

var empty = mpi.Status{Source: mpi.AnySource, Tag: mpi.AnyTag}

// undefinedStatus is the status of a send, which is undefined.
var undefinedStatus = mpi.Status{Source: 4711, Tag: 4712, Count: 4713}

// finish completes the operation.
func (r *request) finish(err error) { r.done, r.err = true, err }

// complete reports whether the operation is complete. A pending cancellation takes effect.
func (r *request) complete() bool {
	r.awaited = true
	if r.cancelling && !r.done {
		r.cancel()
	}
	if !r.done && r.poll != nil && r.poll() {
		r.done = true
	}
	return r.done
}

// begin starts the operation.
func (r *request) begin() error {
	r.active, r.done, r.err, r.st, r.awaited, r.cancelling = true, false, nil, undefinedStatus, false, false
	r.starts++
	err := r.start(r)
	if err != nil {
		r.active = false
	}
	return err
}

func (r *request) Start() error {
	defects := r.p.w.defects
	r.p.enter()
	switch {
	case !r.persistent && defects.PlainStarts:
		return nil
	case !r.persistent, r.freed, defects.PersistentOnce && r.starts > 0:
		return r.c.fail("Start", mpi.ErrRequest)
	case r.active && defects.ActiveStarts:
		return nil
	case r.active:
		return r.c.fail("Start", mpi.ErrRequest)
	}
	return r.c.fail("Start", r.begin())
}

func (r *request) Active() bool { return r.active }

// take returns the result of a complete request and ends it.
func (r *request) take() (mpi.Status, error) {
	if !r.p.w.defects.CompleteStaysActive {
		r.active = false
	}
	return r.st, r.err
}

func (r *request) Wait() (mpi.Status, error) {
	r.p.enter()
	defects := r.p.w.defects
	if !r.active {
		switch {
		case defects.InactiveHangs:
			r.p.blockUntil("a request that is not active", func() bool { return false })
		case defects.InactiveKeepsStatus:
			return r.st, nil
		}
		return empty, nil
	}
	r.p.blockUntil("a request", r.complete)
	st, err := r.take()
	return st, r.c.fail("Wait", err)
}

func (r *request) Test() (mpi.Status, bool, error) {
	r.p.letOthersRun()
	if !r.active {
		return empty, !r.p.w.defects.InactiveTestsFalse, nil
	}
	if !r.complete() || r.p.w.defects.TestNever {
		return mpi.Status{}, false, nil
	}
	st, err := r.take()
	return st, true, r.c.fail("Test", err)
}

func (r *request) GetStatus() (mpi.Status, bool, error) {
	r.p.letOthersRun()
	if !r.active {
		return empty, true, nil
	}
	if !r.complete() {
		return mpi.Status{}, false, nil
	}
	if r.p.w.defects.GetStatusFrees {
		r.active = false
	}
	return r.st, true, nil
}

func (r *request) Cancel() error {
	defects := r.p.w.defects
	r.p.enter()
	if defects.CancelIgnored || r.box == nil {
		return nil
	}
	if r.done && defects.CancelsWhatArrived {
		clear(r.buf)
		r.st.Cancelled = true
	}
	if r.done {
		return nil
	}
	// It may take effect now, or when a rank tests the request.
	if r.p.w.rng.IntN(2) == 0 {
		r.cancelling = true
		return nil
	}
	r.cancel()
	return nil
}

// cancel cancels a receive that has no message yet.
func (r *request) cancel() {
	defects := r.p.w.defects
	r.cancelling = false
	victim := r
	if defects.CancelsFirst && len(r.box.posted) > 0 {
		victim = r.box.posted[0]
	}
	if !defects.CancelKeepsPosted {
		r.box.posted = slices.DeleteFunc(r.box.posted, func(o *request) bool { return o == victim })
	}
	victim.st = mpi.Status{Source: 4714, Tag: 4715, Cancelled: !defects.CancelUntold}
	victim.finish(nil)
	if defects.CancelFails {
		victim.err = mpi.ErrRequest
	}
	if defects.CancelBlanksBuffer {
		clear(r.buf)
	}
}

func (r *request) Free() error {
	r.p.enter()
	if r.p.w.defects.FreeCancels && r.active && r.box == nil {
		for _, x := range r.p.w.wires {
			for _, m := range x.queue {
				m.dropped = m.dropped || m.of == r || x.src == r.p.rank
			}
		}
	}
	if r.p.w.defects.FreeUnposts && r.box != nil {
		r.box.posted = slices.DeleteFunc(r.box.posted, func(o *request) bool { return o == r })
	}
	r.freed = true
	r.active = false
	return nil
}

// concrete returns the requests of a slice that are not nil.
func concrete(rs []cases.Request) []*request {
	all := make([]*request, len(rs))
	for i, r := range rs {
		if r != nil {
			all[i], _ = r.(*request)
		}
	}
	return all
}

func active(r *request) bool { return r != nil && r.active }
