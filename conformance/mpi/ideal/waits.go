package ideal

import (
	"slices"

	cases "github.com/fabrictest/fabrictest/conformance/mpi"
	"github.com/fabrictest/fabrictest/mpi"
)

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

// takeAll ends complete requests, and returns their statuses and errors.
func (r *rank) takeAll(rs []*request) ([]mpi.Status, error) {
	sts := make([]mpi.Status, len(rs))
	errs := make([]error, len(rs))
	failed := false
	for i, q := range rs {
		sts[i] = empty
		if r.Defects.NilIsRankZero && q == nil {
			sts[i] = mpi.Status{}
		}
		if active(q) {
			sts[i], errs[i] = q.take()
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

func (r *rank) WaitAll(rs []cases.Request) ([]mpi.Status, error) {
	r.enter()
	qs := ownRequests(rs)
	if r.Defects.InactiveHangs && slices.ContainsFunc(qs, func(q *request) bool { return !active(q) }) {
		r.blockUntil("what is not active", func() bool { return false })
	}
	r.blockUntil("all requests", func() bool {
		for i, q := range qs {
			if active(q) && !q.complete() {
				return r.Defects.WaitAllMissesLast && i == len(qs)-1
			}
			if r.Defects.WaitAllEndsAtError && active(q) && q.err != nil {
				return true
			}
		}
		return true
	})
	return r.takeAll(qs)
}

func (r *rank) TestAll(rs []cases.Request) ([]mpi.Status, bool, error) {
	r.letOthersRun()
	qs := ownRequests(rs)
	for _, q := range qs {
		if active(q) && !q.complete() {
			if r.Defects.TestAllTakesSome {
				for _, q := range qs {
					if active(q) && q.done {
						q.active = false
					}
				}
			}
			return nil, false, nil
		}
	}
	sts, err := r.takeAll(qs)
	return sts, !r.Defects.TestAllNever, err
}

// completeRequests returns the indices of the active requests that are complete, in random
// order; noneActive is true if no request is active.
func (r *rank) completeRequests(qs []*request) (which []int, noneActive bool) {
	noneActive = true
	for i, q := range qs {
		if active(q) {
			noneActive = false
			if q.complete() {
				which = append(which, i)
			}
		}
	}
	r.rng.Shuffle(len(which), func(i, j int) { which[i], which[j] = which[j], which[i] })
	return which, noneActive
}

// someOf returns the indices of complete requests. If wait is true, it waits for the first; noneActive is as in
// completeRequests.
func (r *rank) someOf(qs []*request, wait bool) (which []int, noneActive bool) {
	if wait {
		r.blockUntil("some request", func() bool {
			which, noneActive = r.completeRequests(qs)
			return noneActive && !r.Defects.InactiveHangs || len(which) > 0
		})
		return which, noneActive
	}
	r.letOthersRun()
	return r.completeRequests(qs)
}

// takeAny ends one of the complete requests.
func (r *rank) takeAny(qs []*request, which []int, noneActive bool) (int, mpi.Status, error) {
	if noneActive || len(which) == 0 {
		if r.Defects.NoneIsFirst {
			return 0, empty, nil
		}
		return mpi.Undefined, empty, nil
	}
	i := which[0]
	st, err := qs[i].take()
	if r.Defects.IndexOff {
		i = (i + 1) % len(qs)
	}
	return i, st, err
}

func (r *rank) WaitAny(rs []cases.Request) (int, mpi.Status, error) {
	r.enter()
	qs := ownRequests(rs)
	which, noneActive := r.someOf(qs, true)
	i, st, err := r.takeAny(qs, which, noneActive)
	return i, st, r.fail("WaitAny", err)
}

func (r *rank) TestAny(rs []cases.Request) (int, mpi.Status, bool, error) {
	qs := ownRequests(rs)
	which, noneActive := r.someOf(qs, false)
	i, st, err := r.takeAny(qs, which, noneActive)
	is := noneActive && !r.Defects.InactiveTestsFalse || len(which) > 0 && !r.Defects.TestNever
	return i, st, is, r.fail("TestAny", err)
}

// takeSome ends the complete requests, and returns their indices.
func (r *rank) takeSome(qs []*request, which []int) ([]int, []mpi.Status, error) {
	some := make([]*request, 0, len(which))
	for _, i := range which {
		some = append(some, qs[i])
	}
	sts, err := r.takeAll(some)
	if r.Defects.IndexOff {
		for k := range which {
			which[k] = (which[k] + 1) % len(qs)
		}
	}
	if r.Defects.SomeTwice && len(which) > 0 {
		which, sts = append(which, which[0]), append(sts, sts[0])
	}
	return which, sts, err
}

func (r *rank) WaitSome(rs []cases.Request) ([]int, []mpi.Status, error) {
	r.enter()
	qs := ownRequests(rs)
	which, noneActive := r.someOf(qs, true)
	if noneActive && r.Defects.NoneIsFirst {
		return []int{0}, []mpi.Status{empty}, nil
	}
	return r.takeSome(qs, which)
}

func (r *rank) TestSome(rs []cases.Request) ([]int, []mpi.Status, error) {
	qs := ownRequests(rs)
	which, _ := r.someOf(qs, false)
	if r.Defects.TestNever {
		which = nil
	}
	return r.takeSome(qs, which)
}
