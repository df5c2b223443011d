package ideal

import (
	"slices"

	cases "github.com/fabrictest/fabrictest/conformance/mpi"
	"github.com/fabrictest/fabrictest/mpi"
)

func (r *rank) StartAll(rs []cases.Request) error {
	if r.p.w.defects.StartAllMissesLast && len(rs) > 1 {
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
	defects := r.p.w.defects
	sts := make([]mpi.Status, len(rs))
	errs := make([]error, len(rs))
	failed := false
	for i, q := range rs {
		sts[i] = empty
		if defects.NilIsRankZero && q == nil {
			sts[i] = mpi.Status{}
		}
		if active(q) {
			sts[i], errs[i] = q.take()
			failed = failed || errs[i] != nil
		}
	}
	if defects.StatusesReversed {
		slices.Reverse(sts)
	}
	if defects.ErrorOfTheWrong {
		slices.Reverse(errs)
	}
	if failed && !defects.SeveralSwallowErrors {
		return sts, &mpi.RequestsError{Errs: errs}
	}
	return sts, nil
}

func (r *rank) WaitAll(rs []cases.Request) ([]mpi.Status, error) {
	r.p.enter()
	qs := concrete(rs)
	defects := r.p.w.defects
	if defects.InactiveHangs && slices.ContainsFunc(qs, func(q *request) bool { return !active(q) }) {
		r.p.blockUntil("what is not active", func() bool { return false })
	}
	r.p.blockUntil("all requests", func() bool {
		for i, q := range qs {
			if active(q) && !q.complete() {
				return defects.WaitAllMissesLast && i == len(qs)-1
			}
			if defects.WaitAllEndsAtError && active(q) && q.err != nil {
				return true
			}
		}
		return true
	})
	return r.takeAll(qs)
}

func (r *rank) TestAll(rs []cases.Request) ([]mpi.Status, bool, error) {
	r.p.letOthersRun()
	qs := concrete(rs)
	for _, q := range qs {
		if active(q) && !q.complete() {
			if r.p.w.defects.TestAllTakesSome {
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
	return sts, !r.p.w.defects.TestAllNever, err
}

// completeOnes returns the indices of the active requests that are complete, in random
// order; none is true if no request is active.
func (r *rank) completeOnes(qs []*request) (which []int, none bool) {
	none = true
	for i, q := range qs {
		if active(q) {
			none = false
			if q.complete() {
				which = append(which, i)
			}
		}
	}
	r.p.w.rng.Shuffle(len(which), func(i, j int) { which[i], which[j] = which[j], which[i] })
	return which, none
}

// someOf waits for at least one request, or tests all.
func (r *rank) someOf(qs []*request, wait bool) (which []int, none bool) {
	if wait {
		r.p.blockUntil("some request", func() bool {
			which, none = r.completeOnes(qs)
			return none && !r.p.w.defects.InactiveHangs || len(which) > 0
		})
		return which, none
	}
	r.p.letOthersRun()
	return r.completeOnes(qs)
}

// takeAny ends one of the complete requests.
func (r *rank) takeAny(qs []*request, which []int, none bool) (int, mpi.Status, error) {
	defects := r.p.w.defects
	if none || len(which) == 0 {
		if defects.NoneIsFirst {
			return 0, empty, nil
		}
		return mpi.Undefined, empty, nil
	}
	i := which[0]
	st, err := qs[i].take()
	if defects.IndexOff {
		i = (i + 1) % len(qs)
	}
	return i, st, err
}

func (r *rank) WaitAny(rs []cases.Request) (int, mpi.Status, error) {
	r.p.enter()
	qs := concrete(rs)
	which, none := r.someOf(qs, true)
	i, st, err := r.takeAny(qs, which, none)
	return i, st, r.fail("WaitAny", err)
}

func (r *rank) TestAny(rs []cases.Request) (int, mpi.Status, bool, error) {
	qs := concrete(rs)
	which, none := r.someOf(qs, false)
	i, st, err := r.takeAny(qs, which, none)
	is := none && !r.p.w.defects.InactiveTestsFalse || len(which) > 0 && !r.p.w.defects.TestNever
	return i, st, is, r.fail("TestAny", err)
}

// takeSome ends the complete requests, and returns their indices.
func (r *rank) takeSome(qs []*request, which []int) ([]int, []mpi.Status, error) {
	defects := r.p.w.defects
	some := make([]*request, 0, len(which))
	for _, i := range which {
		some = append(some, qs[i])
	}
	sts, err := r.takeAll(some)
	if defects.IndexOff {
		for k := range which {
			which[k] = (which[k] + 1) % len(qs)
		}
	}
	if defects.SomeTwice && len(which) > 0 {
		which, sts = append(which, which[0]), append(sts, sts[0])
	}
	return which, sts, err
}

func (r *rank) WaitSome(rs []cases.Request) ([]int, []mpi.Status, error) {
	r.p.enter()
	qs := concrete(rs)
	which, none := r.someOf(qs, true)
	if none && r.p.w.defects.NoneIsFirst {
		return []int{0}, []mpi.Status{empty}, nil
	}
	return r.takeSome(qs, which)
}

func (r *rank) TestSome(rs []cases.Request) ([]int, []mpi.Status, error) {
	qs := concrete(rs)
	which, _ := r.someOf(qs, false)
	if r.p.w.defects.TestNever {
		which = nil
	}
	return r.takeSome(qs, which)
}
