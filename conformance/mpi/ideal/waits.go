package ideal

import (
	"slices"

	cases "github.com/fabrictest/fabrictest/conformance/mpi"
	"github.com/fabrictest/fabrictest/mpi"
)

// StartAll is MPI_Startall. The defect StartAllMissesLast does not start the last request.
func (r *rank) StartAll(rs []cases.Request) error {
	if r.Defects.StartAllMissesLast && len(rs) > 1 {
		rs = rs[:len(rs)-1]
	}
	for _, q := range rs {
		if err := q.Start(); err != nil {
			return err
		}
	}
	return nil
}

// deactivateAll deactivates the active requests, and returns the statuses and errors of all.
// Inactive ones have an empty status.
func (r *rank) deactivateAll(rs []*request) ([]mpi.Status, error) {
	sts := make([]mpi.Status, len(rs))
	errs := make([]error, len(rs))
	failed := false
	for i, q := range rs {
		sts[i] = emptyStatus
		if r.Defects.NilIsRankZero && q == nil {
			sts[i] = mpi.Status{}
		}
		if isActive(q) {
			sts[i], errs[i] = q.deactivate()
			failed = failed || errs[i] != nil
		}
	}
	if r.Defects.StatusesReversed {
		slices.Reverse(sts)
	}
	if r.Defects.ErrorOfTheWrong {
		slices.Reverse(errs)
	}
	if failed && !r.Defects.SeveralSwallowErrors {
		return sts, &mpi.RequestsError{Errs: errs}
	}
	return sts, nil
}

// WaitAll is MPI_Waitall. Defects end the wait too early, or never.
func (r *rank) WaitAll(rs []cases.Request) ([]mpi.Status, error) {
	r.yieldSometimes()
	qs := ownRequests(rs)
	if r.Defects.InactiveHangs && slices.ContainsFunc(qs, func(q *request) bool { return !isActive(q) }) {
		r.blockUntil("a request that is not active", func() bool { return false })
	}
	r.blockUntil("all requests", func() bool {
		for i, q := range qs {
			if isActive(q) && !q.isComplete() {
				return r.Defects.WaitAllMissesLast && i == len(qs)-1
			}
			if r.Defects.WaitAllEndsAtError && isActive(q) && q.err != nil {
				return true
			}
		}
		return true
	})
	return r.deactivateAll(qs)
}

// TestAll is MPI_Testall. The defect TestAllTakesSome deactivates the complete requests though
// others are incomplete.
func (r *rank) TestAll(rs []cases.Request) ([]mpi.Status, bool, error) {
	r.letOthersRun()
	qs := ownRequests(rs)
	for _, q := range qs {
		if isActive(q) && !q.isComplete() {
			if r.Defects.TestAllTakesSome {
				for _, q := range qs {
					if isActive(q) && q.done {
						q.active = false
					}
				}
			}
			return nil, false, nil
		}
	}
	sts, err := r.deactivateAll(qs)
	return sts, !r.Defects.TestAllNever, err
}

// completeRequests returns the indices of the active requests that are complete, in random
// order; noneActive is true if no request is active.
func (r *rank) completeRequests(qs []*request) (completed []int, noneActive bool) {
	noneActive = true
	for i, q := range qs {
		if isActive(q) {
			noneActive = false
			if q.isComplete() {
				completed = append(completed, i)
			}
		}
	}
	r.rng.Shuffle(len(completed), func(i, j int) { completed[i], completed[j] = completed[j], completed[i] })
	return completed, noneActive
}

// findComplete lets other ranks run, and returns the indices of the complete active requests, and
// whether none is active. If wait is true, it waits for a complete one, or until none is active.
func (r *rank) findComplete(qs []*request, wait bool) (completed []int, noneActive bool) {
	if wait {
		r.blockUntil("some request", func() bool {
			completed, noneActive = r.completeRequests(qs)
			return noneActive && !r.Defects.InactiveHangs || len(completed) > 0
		})
		return completed, noneActive
	}
	r.letOthersRun()
	return r.completeRequests(qs)
}

// deactivateAny deactivates request completed[0], and returns its index, status and error. It
// returns Undefined if completed is empty.
func (r *rank) deactivateAny(qs []*request, completed []int) (int, mpi.Status, error) {
	if len(completed) == 0 {
		if r.Defects.NoneIsFirst {
			return 0, emptyStatus, nil
		}
		return mpi.Undefined, emptyStatus, nil
	}
	i := completed[0]
	st, err := qs[i].deactivate()
	if r.Defects.IndexOff {
		i = (i + 1) % len(qs)
	}
	return i, st, err
}

// WaitAny is MPI_Waitany.
func (r *rank) WaitAny(rs []cases.Request) (int, mpi.Status, error) {
	r.yieldSometimes()
	qs := ownRequests(rs)
	completed, _ := r.findComplete(qs, blocking)
	i, st, err := r.deactivateAny(qs, completed)
	return i, st, r.fail("WaitAny", err)
}

// TestAny is MPI_Testany. Defects (deliberate errors for cases to find) return a wrong flag.
func (r *rank) TestAny(rs []cases.Request) (int, mpi.Status, bool, error) {
	qs := ownRequests(rs)
	completed, noneActive := r.findComplete(qs, nonblocking)
	i, st, err := r.deactivateAny(qs, completed)
	flag := noneActive && !r.Defects.InactiveTestsFalse || len(completed) > 0 && !r.Defects.TestNever
	return i, st, flag, r.fail("TestAny", err)
}

// deactivateSome deactivates the requests with the indices completed, and returns the indices,
// statuses and errors.
func (r *rank) deactivateSome(qs []*request, completed []int) ([]int, []mpi.Status, error) {
	some := make([]*request, 0, len(completed))
	for _, i := range completed {
		some = append(some, qs[i])
	}
	sts, err := r.deactivateAll(some)
	if r.Defects.IndexOff {
		for k := range completed {
			completed[k] = (completed[k] + 1) % len(qs)
		}
	}
	if r.Defects.SomeTwice && len(completed) > 0 {
		completed, sts = append(completed, completed[0]), append(sts, sts[0])
	}
	return completed, sts, err
}

// WaitSome is MPI_Waitsome. The defect NoneIsFirst returns index 0 if no request is active.
func (r *rank) WaitSome(rs []cases.Request) ([]int, []mpi.Status, error) {
	r.yieldSometimes()
	qs := ownRequests(rs)
	completed, noneActive := r.findComplete(qs, blocking)
	if noneActive && r.Defects.NoneIsFirst {
		return []int{0}, []mpi.Status{emptyStatus}, nil
	}
	return r.deactivateSome(qs, completed)
}

// TestSome is MPI_Testsome. The defect TestNever finds no complete request.
func (r *rank) TestSome(rs []cases.Request) ([]int, []mpi.Status, error) {
	qs := ownRequests(rs)
	completed, _ := r.findComplete(qs, nonblocking)
	if r.Defects.TestNever {
		completed = nil
	}
	return r.deactivateSome(qs, completed)
}
