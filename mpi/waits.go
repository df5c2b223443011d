package mpi

// Values of the parameter wait of completeAll, completeAny, completeSome and probes.
const blocking, nonblocking = true, false

// rankOf returns the rank that the active requests belong to, nil if none is active, or an
// error if the rank has been finalized.
func rankOf(rs []*Request) (*rank, error) {
	for _, r := range rs {
		if r.Active() {
			return r.c.rank, r.c.raise(r.call, r.c.rank.checkRunning())
		}
	}
	return nil, nil
}

// firstComplete returns the index of the first complete active request, or Undefined.
func firstComplete(rs []*Request) int {
	for i, r := range rs {
		if r.Active() && r.isComplete() {
			return i
		}
	}
	return Undefined
}

// requestErrors collects the errors of several requests.
type requestErrors struct {
	requests []*Request
	errs     []error // by request
}

// add adds the error of a request, nil if it succeeded.
func (o *requestErrors) add(r *Request, err error) {
	o.requests, o.errs = append(o.requests, r), append(o.errs, err)
}

// raise passes the errors to the error handlers of their communicators, and returns a
// *RequestsError if a handler returns an error. The caller does not hold the lock.
func (o *requestErrors) raise() error {
	failed := false
	for i, err := range o.errs {
		if err != nil {
			o.errs[i] = o.requests[i].c.raise(o.requests[i].call, err)
			failed = failed || o.errs[i] != nil
		}
	}
	if !failed {
		return nil
	}
	return &RequestsError{o.errs}
}

// finishAll finishes all requests, which must be complete or inactive. It adds the error of each,
// nil included, to o.
func finishAll(rs []*Request, o *requestErrors) []Status {
	statuses := make([]Status, len(rs))
	for i, r := range rs {
		statuses[i] = emptyStatus
		var err error
		if r.Active() {
			statuses[i], err = r.finish()
		}
		o.add(r, err)
	}
	return statuses
}

// finishCompleted finishes the complete requests, returns their indices and statuses, and adds
// the error of each, nil included, to o.
func finishCompleted(rs []*Request, o *requestErrors) (indices []int, statuses []Status) {
	for i, r := range rs {
		if r.Active() && r.isComplete() {
			st, err := r.finish()
			indices, statuses = append(indices, i), append(statuses, st)
			o.add(r, err)
		}
	}
	return indices, statuses
}

// WaitAll waits for all requests and returns their statuses. The error is a *RequestsError
// with an entry per request.
func WaitAll(rs []*Request) ([]Status, error) {
	statuses, _, err := completeAll(rs, blocking)
	return statuses, err
}

// TestAll reports whether all requests are complete, and finishes them if so.
func TestAll(rs []*Request) ([]Status, bool, error) { return completeAll(rs, nonblocking) }

// completeAll waits until all requests are complete, or polls once. If all are, it finishes them.
func completeAll(rs []*Request, wait bool) (statuses []Status, done bool, err error) {
	var o requestErrors
	k, err := rankOf(rs)
	if err != nil {
		return nil, false, err
	}
	if k == nil {
		return finishAll(rs, &o), true, nil
	}
	next := 0 // requests before it are complete
	k.lock()
	if k.calls != nil {
		k.calls.waitsForRequests(false, rs...)
	}
	if done = k.poll(wait, func() bool {
		for next < len(rs) && (!rs[next].Active() || rs[next].isComplete()) {
			next++
		}
		return next == len(rs)
	}); done {
		statuses = finishAll(rs, &o)
	}
	k.unlock()
	if k.calls != nil && !done {
		k.calls.polled(false, rs...)
	}
	return statuses, done, o.raise()
}

// poll waits until a condition holds, or polls once if wait is false. It reports whether it holds.
func (k *rank) poll(wait bool, holds func() bool) bool {
	if !wait {
		return k.pollOnce(holds)
	}
	k.waitUntil(holds)
	return true
}

// WaitAny waits for one request and returns its index; Undefined if none is active.
func WaitAny(rs []*Request) (int, Status, error) {
	at, st, _, err := completeAny(rs, blocking)
	return at, st, err
}

// TestAny reports whether a request is complete, with its index. If none is active, it
// returns true and Undefined.
func TestAny(rs []*Request) (int, Status, bool, error) { return completeAny(rs, nonblocking) }

// completeAny implements WaitAny (wait is true) and TestAny: it finishes one complete request and
// returns its index. If none is complete, it returns Undefined, and true only if none is active.
func completeAny(rs []*Request, wait bool) (int, Status, bool, error) {
	k, err := rankOf(rs)
	if k == nil || err != nil {
		return Undefined, emptyStatus, err == nil, err
	}
	k.lock()
	if k.calls != nil {
		k.calls.waitsForRequests(true, rs...)
	}
	at := Undefined
	if !k.poll(wait, func() bool {
		at = firstComplete(rs)
		return at != Undefined
	}) {
		k.unlock()
		if k.calls != nil {
			k.calls.polled(true, rs...)
		}
		return Undefined, emptyStatus, false, nil
	}
	st, err := rs[at].finish()
	k.unlock()
	return at, st, true, rs[at].c.raise(rs[at].call, err)
}

// WaitSome waits for at least one request and returns the indices and statuses of all complete
// ones; none if no request is active. The error is a *RequestsError in the order of the indices.
func WaitSome(rs []*Request) ([]int, []Status, error) { return completeSome(rs, blocking) }

// TestSome returns the indices and statuses of all complete requests, without waiting.
func TestSome(rs []*Request) ([]int, []Status, error) { return completeSome(rs, nonblocking) }

// completeSome finishes all complete requests. If wait is true, it waits for one.
func completeSome(rs []*Request, wait bool) ([]int, []Status, error) {
	k, err := rankOf(rs)
	if k == nil || err != nil {
		return nil, nil, err
	}
	var o requestErrors
	k.lock()
	if k.calls != nil {
		k.calls.waitsForRequests(true, rs...)
	}
	k.poll(wait, func() bool { return firstComplete(rs) != Undefined })
	indices, statuses := finishCompleted(rs, &o)
	k.unlock()
	if k.calls != nil && len(indices) == 0 {
		k.calls.polled(true, rs...)
	}
	return indices, statuses, o.raise()
}
