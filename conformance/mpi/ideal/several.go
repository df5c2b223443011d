package ideal

import (
	"slices"

	cases "github.com/fabrictest/fabrictest/conformance/mpi"
	"github.com/fabrictest/fabrictest/mpi"
)

func (r *rank) StartAll(rs []cases.Request) error {
	if r.p.w.fl.StartAllMissesLast && len(rs) > 1 {
		rs = rs[:len(rs)-1]
	}
	for _, q := range rs {
		if err := q.Start(); err != nil {
			return err
		}
	}
	return nil
}

// takeAll ends requests that are complete, and says how they ended.
func (r *rank) takeAll(rs []*request) ([]mpi.Status, error) {
	fl := r.p.w.fl
	sts := make([]mpi.Status, len(rs))
	errs := make([]error, len(rs))
	failed := false
	for i, q := range rs {
		sts[i] = empty
		if fl.NilIsRankZero && q == nil {
			sts[i] = mpi.Status{}
		}
		if active(q) {
			sts[i], errs[i] = q.take()
			failed = failed || errs[i] != nil
		}
	}
	if fl.StatusesReversed {
		slices.Reverse(sts)
	}
	if fl.ErrorOfTheWrong {
		slices.Reverse(errs)
	}
	if failed && !fl.SeveralSwallowErrors {
		return sts, &mpi.RequestsError{Errs: errs}
	}
	return sts, nil
}

func (r *rank) WaitAll(rs []cases.Request) ([]mpi.Status, error) {
	r.p.enter()
	qs := own(rs)
	fl := r.p.w.fl
	if fl.InactiveHangs && slices.ContainsFunc(qs, func(q *request) bool { return !active(q) }) {
		r.p.park("what is not active", func() bool { return false })
	}
	r.p.park("all requests", func() bool {
		for i, q := range qs {
			if active(q) && !q.complete() {
				return fl.WaitAllMissesLast && i == len(qs)-1
			}
			if fl.WaitAllEndsAtError && active(q) && q.err != nil {
				return true
			}
		}
		return true
	})
	return r.takeAll(qs)
}

func (r *rank) TestAll(rs []cases.Request) ([]mpi.Status, bool, error) {
	r.p.look()
	qs := own(rs)
	for _, q := range qs {
		if active(q) && !q.complete() {
			if r.p.w.fl.TestAllTakesSome {
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
	return sts, !r.p.w.fl.TestAllNever, err
}

// completeOnes are the indices of those that are active and complete, in random order;
// none is true if no one is active.
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

// someOf waits for at least one, or for what is to be seen at once.
func (r *rank) someOf(qs []*request, wait bool) (which []int, none bool) {
	if wait {
		r.p.park("some request", func() bool {
			which, none = r.completeOnes(qs)
			return none && !r.p.w.fl.InactiveHangs || len(which) > 0
		})
		return which, none
	}
	r.p.look()
	return r.completeOnes(qs)
}

// takeAny ends one of them.
func (r *rank) takeAny(qs []*request, which []int, none bool) (int, mpi.Status, error) {
	fl := r.p.w.fl
	if none || len(which) == 0 {
		if fl.NoneIsFirst {
			return 0, empty, nil
		}
		return mpi.Undefined, empty, nil
	}
	i := which[0]
	st, err := qs[i].take()
	if fl.IndexOff {
		i = (i + 1) % len(qs)
	}
	return i, st, err
}

func (r *rank) WaitAny(rs []cases.Request) (int, mpi.Status, error) {
	r.p.enter()
	qs := own(rs)
	which, none := r.someOf(qs, true)
	i, st, err := r.takeAny(qs, which, none)
	return i, st, r.fail("WaitAny", err)
}

func (r *rank) TestAny(rs []cases.Request) (int, mpi.Status, bool, error) {
	qs := own(rs)
	which, none := r.someOf(qs, false)
	i, st, err := r.takeAny(qs, which, none)
	is := none && !r.p.w.fl.InactiveTestsFalse || len(which) > 0 && !r.p.w.fl.TestNever
	return i, st, is, r.fail("TestAny", err)
}

func (r *rank) takeSome(qs []*request, which []int) ([]int, []mpi.Status, error) {
	fl := r.p.w.fl
	some := make([]*request, 0, len(which))
	for _, i := range which {
		some = append(some, qs[i])
	}
	sts, err := r.takeAll(some)
	if fl.IndexOff {
		for k := range which {
			which[k] = (which[k] + 1) % len(qs)
		}
	}
	if fl.SomeTwice && len(which) > 0 {
		which, sts = append(which, which[0]), append(sts, sts[0])
	}
	return which, sts, err
}

func (r *rank) WaitSome(rs []cases.Request) ([]int, []mpi.Status, error) {
	r.p.enter()
	qs := own(rs)
	which, none := r.someOf(qs, true)
	if none && r.p.w.fl.NoneIsFirst {
		return []int{0}, []mpi.Status{empty}, nil
	}
	return r.takeSome(qs, which)
}

func (r *rank) TestSome(rs []cases.Request) ([]int, []mpi.Status, error) {
	qs := own(rs)
	which, _ := r.someOf(qs, false)
	if r.p.w.fl.TestNever {
		which = nil
	}
	return r.takeSome(qs, which)
}
