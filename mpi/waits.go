package mpi

// rankOf is the rank that active requests belong to; nil if none of them is active. An
// error: it has ended.
func rankOf(rs []*Request) (*rank, error) {
	for _, r := range rs {
		if !r.inactive() {
			return r.c.k, r.c.raise(r.call, r.c.k.checkRunning())
		}
	}
	return nil, nil
}

// firstComplete is the index of the first active request that is complete, or
// Undefined.
func firstComplete(rs []*Request) int {
	for i, r := range rs {
		if !r.inactive() && r.complete() {
			return i
		}
	}
	return Undefined
}

func allComplete(rs []*Request) bool {
	for _, r := range rs {
		if !r.inactive() && !r.complete() {
			return false
		}
	}
	return true
}

// outcome gathers what several requests ended with.
type requestErrors struct {
	comms  []*Comm
	calls  []string
	errs   []error
	failed bool
}

func (o *requestErrors) add(r *Request, err error) {
	o.comms, o.calls, o.errs = append(o.comms, r.comm()), append(o.calls, callOf(r)), append(o.errs, err)
	o.failed = o.failed || err != nil
}

func callOf(r *Request) string {
	if r == nil {
		return ""
	}
	return r.call
}

// raise hands the errors to their communicators' handlers. No lock is held.
func (o *requestErrors) raise() error {
	if !o.failed {
		return nil
	}
	failed := false
	for i, err := range o.errs {
		o.errs[i] = o.comms[i].raise(o.calls[i], err)
		failed = failed || o.errs[i] != nil
	}
	if !failed {
		return nil
	}
	return &RequestsError{o.errs}
}

// takeAll ends all requests, which are complete.
func finishAll(rs []*Request, o *requestErrors) []Status {
	statuses := make([]Status, len(rs))
	for i, r := range rs {
		statuses[i] = emptyStatus
		var err error
		if !r.inactive() {
			statuses[i], err = r.finish()
		}
		o.add(r, err)
	}
	return statuses
}

// takeSome ends the requests that are complete.
func finishCompleted(rs []*Request, o *requestErrors) (indices []int, statuses []Status) {
	for i, r := range rs {
		if !r.inactive() && r.complete() {
			st, err := r.finish()
			indices, statuses = append(indices, i), append(statuses, st)
			o.add(r, err)
		}
	}
	return indices, statuses
}

// WaitAll returns when all requests are complete, with a status for each. An error is
// a *RequestsError with one for each request.
func WaitAll(rs []*Request) ([]Status, error) {
	var o requestErrors
	k, err := rankOf(rs)
	if err != nil {
		return nil, err
	}
	if k == nil {
		return finishAll(rs, &o), nil
	}
	k.lock()
	next := 0 // those before it are complete, and stay so
	k.waitUntil(func() bool {
		for next < len(rs) && (rs[next].inactive() || rs[next].complete()) {
			next++
		}
		return next == len(rs)
	})
	all := finishAll(rs, &o)
	k.unlock()
	return all, o.raise()
}

// WaitAny returns when one request is complete: its index; Undefined if none is
// active.
func WaitAny(rs []*Request) (int, Status, error) {
	k, err := rankOf(rs)
	if k == nil || err != nil {
		return Undefined, emptyStatus, err
	}
	k.lock()
	at := Undefined
	k.waitUntil(func() bool {
		at = firstComplete(rs)
		return at != Undefined
	})
	st, err := rs[at].finish()
	k.unlock()
	return at, st, rs[at].c.raise(rs[at].call, err)
}

// WaitSome returns when at least one request is complete: the indices of all that
// are, with their statuses; none if no request is active. An error is a
// *RequestsError, in the order of the indices.
func WaitSome(rs []*Request) ([]int, []Status, error) {
	k, err := rankOf(rs)
	if k == nil || err != nil {
		return nil, nil, err
	}
	var o requestErrors
	k.lock()
	k.waitUntil(func() bool { return firstComplete(rs) != Undefined })
	at, all := finishCompleted(rs, &o)
	k.unlock()
	return at, all, o.raise()
}

// TestAll reports whether all requests are complete. If not, none of them is changed.
func TestAll(rs []*Request) ([]Status, bool, error) {
	var o requestErrors
	k, err := rankOf(rs)
	if err != nil {
		return nil, false, err
	}
	if k == nil {
		return finishAll(rs, &o), true, nil
	}
	k.lock()
	if !k.pollOnce(func() bool { return allComplete(rs) }) {
		k.unlock()
		return nil, false, nil
	}
	all := finishAll(rs, &o)
	k.unlock()
	return all, true, o.raise()
}

// TestAny reports whether a request is complete, and its index. If none is active, it
// is true with Undefined.
func TestAny(rs []*Request) (int, Status, bool, error) {
	k, err := rankOf(rs)
	if k == nil || err != nil {
		return Undefined, emptyStatus, err == nil, err
	}
	k.lock()
	at := Undefined
	found := k.pollOnce(func() bool {
		at = firstComplete(rs)
		return at != Undefined
	})
	if !found {
		k.unlock()
		return Undefined, emptyStatus, false, nil
	}
	st, err := rs[at].finish()
	k.unlock()
	return at, st, true, rs[at].c.raise(rs[at].call, err)
}

// TestSome returns the indices of all requests that are complete, with their
// statuses.
func TestSome(rs []*Request) ([]int, []Status, error) {
	k, err := rankOf(rs)
	if k == nil || err != nil {
		return nil, nil, err
	}
	var o requestErrors
	k.lock()
	k.pollOnce(func() bool { return firstComplete(rs) != Undefined })
	at, all := finishCompleted(rs, &o)
	k.unlock()
	return at, all, o.raise()
}
