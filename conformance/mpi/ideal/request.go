package ideal

import (
	"slices"

	cases "github.com/fabrictest/fabrictest/conformance/mpi"
	"github.com/fabrictest/fabrictest/mpi"
)

// request is what was begun. The zero value of what it is about is never used.
type request struct {
	p          *proc
	c          *comm
	buf        []byte
	source     int // or where to
	tag        int
	box        *box // of receives
	st         mpi.Status
	err        error
	active     bool
	done       bool
	persistent bool
	freed      bool
	awaited    bool // somebody waits for it
	cancelling bool // Cancel was called, and has had no effect yet
	starts     int
	start      func(*request) error
	poll       func() bool // asks whether it is complete, where nobody says so
}

var empty = mpi.Status{Source: mpi.AnySource, Tag: mpi.AnyTag}

// nothingToSay is the status of a send: nobody may look at it.
var nothingToSay = mpi.Status{Source: 4711, Tag: 4712, Count: 4713}

func (r *request) finish(err error) { r.done, r.err = true, err }

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

// begin starts it.
func (r *request) begin() error {
	r.active, r.done, r.err, r.st, r.awaited, r.cancelling = true, false, nil, nothingToSay, false, false
	r.starts++
	err := r.start(r)
	if err != nil {
		r.active = false
	}
	return err
}

func (r *request) Start() error {
	fl := r.p.w.fl
	r.p.enter()
	switch {
	case !r.persistent && fl.PlainStarts:
		return nil
	case !r.persistent, r.freed, fl.PersistentOnce && r.starts > 0:
		return r.c.fail("Start", mpi.ErrRequest)
	case r.active && fl.ActiveStarts:
		return nil
	case r.active:
		return r.c.fail("Start", mpi.ErrRequest)
	}
	return r.c.fail("Start", r.begin())
}

func (r *request) Active() bool { return r.active }

// take ends a request that is complete.
func (r *request) take() (mpi.Status, error) {
	if !r.p.w.fl.CompleteStaysActive {
		r.active = false
	}
	return r.st, r.err
}

func (r *request) Wait() (mpi.Status, error) {
	r.p.enter()
	fl := r.p.w.fl
	if !r.active {
		switch {
		case fl.InactiveHangs:
			r.p.park("a request that is not active", func() bool { return false })
		case fl.InactiveKeepsStatus:
			return r.st, nil
		}
		return empty, nil
	}
	r.p.park("a request", r.complete)
	st, err := r.take()
	return st, r.c.fail("Wait", err)
}

func (r *request) Test() (mpi.Status, bool, error) {
	r.p.look()
	if !r.active {
		return empty, !r.p.w.fl.InactiveTestsFalse, nil
	}
	if !r.complete() || r.p.w.fl.TestNever {
		return mpi.Status{}, false, nil
	}
	st, err := r.take()
	return st, true, r.c.fail("Test", err)
}

func (r *request) GetStatus() (mpi.Status, bool, error) {
	r.p.look()
	if !r.active {
		return empty, true, nil
	}
	if !r.complete() {
		return mpi.Status{}, false, nil
	}
	if r.p.w.fl.GetStatusFrees {
		r.active = false
	}
	return r.st, true, nil
}

func (r *request) Cancel() error {
	fl := r.p.w.fl
	r.p.enter()
	if fl.CancelIgnored || r.box == nil {
		return nil
	}
	if r.done && fl.CancelsWhatArrived {
		clear(r.buf)
		r.st.Cancelled = true
	}
	if r.done {
		return nil
	}
	// It may take effect at once, or when somebody looks whether it has.
	if r.p.w.rng.IntN(2) == 0 {
		r.cancelling = true
		return nil
	}
	r.cancel()
	return nil
}

// cancel gives a receive up that has no message yet.
func (r *request) cancel() {
	fl := r.p.w.fl
	r.cancelling = false
	victim := r
	if fl.CancelsFirst && len(r.box.posted) > 0 {
		victim = r.box.posted[0]
	}
	if !fl.CancelKeepsPosted {
		r.box.posted = slices.DeleteFunc(r.box.posted, func(o *request) bool { return o == victim })
	}
	victim.st = mpi.Status{Source: 4714, Tag: 4715, Cancelled: !fl.CancelUntold}
	victim.finish(nil)
	if fl.CancelFails {
		victim.err = mpi.ErrRequest
	}
	if fl.CancelBlanksBuffer {
		clear(r.buf)
	}
}

func (r *request) Free() error {
	r.p.enter()
	if r.p.w.fl.FreeCancels && r.active && r.box == nil {
		for _, x := range r.p.w.wires {
			for _, m := range x.queue {
				m.dropped = m.dropped || m.of == r || x.src == r.p.rank
			}
		}
	}
	if r.p.w.fl.FreeUnposts && r.box != nil {
		r.box.posted = slices.DeleteFunc(r.box.posted, func(o *request) bool { return o == r })
	}
	r.freed = true
	r.active = false
	return nil
}

// own are the requests of a slice that are not nil.
func own(rs []cases.Request) []*request {
	all := make([]*request, len(rs))
	for i, r := range rs {
		if r != nil {
			all[i], _ = r.(*request)
		}
	}
	return all
}

func active(r *request) bool { return r != nil && r.active }
