package ideal

import (
	"slices"

	cases "github.com/fabrictest/fabrictest/conformance/mpi"
	"github.com/fabrictest/fabrictest/mpi"
)

// request is a nonblocking operation.
type request struct {
	c          *comm
	call       string // the MPI call that starts it, for errors
	buf        []byte
	peer       int // source or destination
	tag        int
	queues     *recvQueues // of receives
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

// emptyStatus is what MPI calls an empty status.
var emptyStatus = mpi.Status{Source: mpi.AnySource, Tag: mpi.AnyTag}

// undefinedStatus is the status of a send, which is undefined.
var undefinedStatus = mpi.Status{Source: 4711, Tag: 4712, Count: 4713}

// finish completes the operation.
func (r *request) finish(err error) { r.done, r.err = true, err }

// isComplete reports whether the operation is complete, after a pending cancellation has taken
// effect. It sets awaited: a defect delivers large messages only once a rank waits for them.
func (r *request) isComplete() bool {
	r.awaited = true
	if r.cancelling && !r.done {
		r.cancelNow()
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

// Start is MPI_Start, for an inactive persistent request. Defects (deliberate errors) accept other
// requests, or refuse a second start.
func (r *request) Start() error {
	r.c.yieldSometimes()
	switch {
	case !r.persistent && r.c.Defects.PlainStarts:
		return nil
	case !r.persistent, r.freed, r.c.Defects.PersistentOnce && r.starts > 0:
		return r.c.fail("Start", mpi.ErrRequest)
	case r.active && r.c.Defects.ActiveStarts:
		return nil
	case r.active:
		return r.c.fail("Start", mpi.ErrRequest)
	}
	return r.c.fail("Start", r.begin())
}

func (r *request) Active() bool { return r.active }

// deactivate returns the status and the error of a complete request, and makes it inactive.
func (r *request) deactivate() (mpi.Status, error) {
	if !r.c.Defects.CompleteStaysActive {
		r.active = false
	}
	return r.st, r.err
}

// Wait is MPI_Wait. Without a defect, it returns at once with an empty status if r is inactive.
func (r *request) Wait() (mpi.Status, error) {
	r.c.yieldSometimes()
	if !r.active {
		switch {
		case r.c.Defects.InactiveHangs:
			r.c.blockUntil("a request that is not active", func() bool { return false })
		case r.c.Defects.InactiveKeepsStatus:
			return r.st, nil
		}
		return emptyStatus, nil
	}
	r.c.blockUntil("a request", r.isComplete)
	st, err := r.deactivate()
	return st, r.c.fail("Wait", err)
}

// Test is MPI_Test. Defects (deliberate errors for cases to find) return a wrong flag.
func (r *request) Test() (mpi.Status, bool, error) {
	r.c.letOthersRun()
	if !r.active {
		return emptyStatus, !r.c.Defects.InactiveTestsFalse, nil
	}
	if !r.isComplete() || r.c.Defects.TestNever {
		return mpi.Status{}, false, nil
	}
	st, err := r.deactivate()
	return st, true, r.c.fail("Test", err)
}

// GetStatus is MPI_Request_get_status. The defect GetStatusFrees deactivates the request.
func (r *request) GetStatus() (mpi.Status, bool, error) {
	r.c.letOthersRun()
	if !r.active {
		return emptyStatus, true, nil
	}
	if !r.isComplete() {
		return mpi.Status{}, false, nil
	}
	if r.c.Defects.GetStatusFrees {
		r.active = false
	}
	return r.st, true, nil
}

// Cancel cancels a receive without a message: at random now or in isComplete, because MPI leaves the
// time open. It does not cancel sends: only receives have queues.
func (r *request) Cancel() error {
	r.c.yieldSometimes()
	if r.c.Defects.CancelIgnored || r.queues == nil {
		return nil
	}
	if r.done && r.c.Defects.CancelsWhatArrived {
		clear(r.buf)
		r.st.Cancelled = true
	}
	if r.done {
		return nil
	}
	if r.c.rng.IntN(2) == 0 {
		r.cancelling = true
		return nil
	}
	r.cancelNow()
	return nil
}

// cancelNow cancels a receive that has no message yet. Defects (deliberate errors) cancel another
// one, leave it posted, or falsify its status.
func (r *request) cancelNow() {
	r.cancelling = false
	victim := r
	if r.c.Defects.CancelsFirst && len(r.queues.posted) > 0 {
		victim = r.queues.posted[0]
	}
	if !r.c.Defects.CancelKeepsPosted {
		r.queues.posted = slices.DeleteFunc(r.queues.posted, func(o *request) bool { return o == victim })
	}
	victim.st = mpi.Status{Source: undefinedStatus.Source, Tag: undefinedStatus.Tag, Cancelled: !r.c.Defects.CancelUntold}
	victim.finish(nil)
	if r.c.Defects.CancelFails {
		victim.err = mpi.ErrRequest
	}
	if r.c.Defects.CancelBlanksBuffer {
		clear(r.buf)
	}
}

// Free frees the request. Its operation still completes; the defect FreeCancels drops the messages
// of a send, and FreeUnposts drops a receive.
func (r *request) Free() error {
	r.c.yieldSometimes()
	if r.c.Defects.FreeCancels && r.active && r.queues == nil {
		for _, link := range r.c.links {
			for _, m := range link.queue {
				// The message of a completed send does not name its request (m.send is nil): drop
				// all messages of this rank.
				m.dropped = m.dropped || m.send == r || link.src == r.c.proc.rank
			}
		}
	}
	if r.c.Defects.FreeUnposts && r.queues != nil {
		r.queues.posted = slices.DeleteFunc(r.queues.posted, func(o *request) bool { return o == r })
	}
	r.freed = true
	r.active = false
	return nil
}

// ownRequests converts requests to the type of this package. Nil requests stay nil.
func ownRequests(rs []cases.Request) []*request {
	all := make([]*request, len(rs))
	for i, r := range rs {
		if r != nil {
			all[i] = r.(*request)
		}
	}
	return all
}

// isActive reports whether r is a request that is active.
func isActive(r *request) bool { return r != nil && r.active }
