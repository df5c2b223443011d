package mpi

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
)

func TestWaitAnyAndWaitSome(t *testing.T) {
	inAllConfigurations(t, 4, func(w *World) error {
		const each = 5
		if w.Rank() > 0 {
			for i := range each {
				w.Compute(time.Duration(w.Rank()*i) * time.Microsecond)
				must.Do(t, w.Send(testMessage(i, 10*w.Rank()*i), 0, i))
			}
			return nil
		}
		var reqs []*Request
		for from := 1; from < w.Size(); from++ {
			for i := range each {
				r := must.Get(w.Irecv(make([]byte, 1000), from, i))(t)
				reqs = append(reqs, r, nil)
			}
		}
		left := (w.Size() - 1) * each
		took := func(at int, st Status) error {
			left--
			if want := (Status{1 + at/2/each, at / 2 % each, 10 * (1 + at/2/each) * (at / 2 % each), false}); st != want || reqs[at].Active() {
				return fmt.Errorf("request %d: %+v, want %+v; active: %v", at, st, want, reqs[at].Active())
			}
			return nil
		}
		for turn := 0; left > 0; turn++ {
			var at []int
			var all []Status
			var err error
			var one int
			var st Status
			var found bool
			switch turn % 4 {
			case 0:
				one, st, err = WaitAny(reqs)
				at, all = []int{one}, []Status{st}
			case 1:
				at, all, err = WaitSome(reqs)
				if len(at) == 0 {
					return errors.New("WaitSome returned none")
				}
			case 2:
				if one, st, found, err = TestAny(reqs); found {
					at, all = []int{one}, []Status{st}
				}
			case 3:
				at, all, err = TestSome(reqs)
			}
			if err != nil {
				return err
			}
			for i := range at {
				must.Do(t, took(at[i], all[i]))
			}
		}
		if at, st, err := WaitAny(reqs); at != Undefined || st != emptyStatus || err != nil {
			return fmt.Errorf("WaitAny of none: %d, %+v, %v", at, st, err)
		}
		if at, _, err := WaitSome(reqs); at != nil || err != nil {
			return fmt.Errorf("WaitSome of none: %v, %v", at, err)
		}
		if at, _, found, err := TestAny(reqs); at != Undefined || !found || err != nil {
			return fmt.Errorf("TestAny of none: %d, %v, %v", at, found, err)
		}
		if all, found, err := TestAll(reqs); len(all) != len(reqs) || !found || err != nil {
			return fmt.Errorf("TestAll of none: %v, %v", found, err)
		}
		return nil
	})
}

// TestAll completes all requests or none; GetStatus completes none.
func TestTestAllCompletesAllOrNone(t *testing.T) {
	inAllConfigurations(t, 2, func(w *World) error {
		if w.Rank() == 1 {
			must.Do(t, w.Send([]byte("a"), 0, 1))
			must.Get(w.Recv(nil, 0, 3))(t)
			return w.Send([]byte("bc"), 0, 2)
		}
		a := must.Get(w.Irecv(make([]byte, 4), 1, 1))(t)
		b, err := w.Irecv(make([]byte, 4), 1, 2)
		if err != nil {
			return err
		}
		both := []*Request{a, b}
		for done := false; !done; {
			var st Status
			if st, done, err = a.GetStatus(); err != nil || done && st.Count != 1 {
				return fmt.Errorf("%+v, %v", st, err)
			}
			if _, all, err := TestAll(both); all || err != nil {
				return fmt.Errorf("all are done: %v, %v", all, err)
			}
		}
		if !a.Active() {
			return errors.New("GetStatus has ended a request")
		}
		must.Do(t, w.Send(nil, 1, 3))
		for {
			all, done, err := TestAll(both)
			if err != nil {
				return err
			}
			if done {
				if all[0].Count != 1 || all[1].Count != 2 || a.Active() || b.Active() {
					return fmt.Errorf("%+v", all)
				}
				return nil
			}
		}
	})
}

func TestWaitAllReportsErrorPerRequest(t *testing.T) {
	inAllConfigurations(t, 2, func(w *World) error {
		if w.Rank() == 1 {
			return errors.Join(w.Send([]byte("abc"), 0, 1), w.Send([]byte("abc"), 0, 2))
		}
		a := must.Get(w.Irecv(make([]byte, 3), 1, 1))(t)
		b := must.Get(w.Irecv(make([]byte, 2), 1, 2))(t)
		all, err := WaitAll([]*Request{a, nil, b})
		var each *RequestsError
		if !errors.As(err, &each) || !errors.Is(err, ErrTruncate) || len(each.Errs) != 3 || each.Errs[0] != nil || each.Errs[1] != nil || each.Errs[2] == nil {
			return fmt.Errorf("%v", err)
		}
		if all[0].Count != 3 || all[2].Count != 2 {
			return fmt.Errorf("%+v", all)
		}
		return nil
	})
}

func TestRequestFreeLetsOperationComplete(t *testing.T) {
	inAllConfigurations(t, 2, func(w *World) error {
		for id, n := range sizes {
			if w.Rank() == 0 {
				r, err := w.Isend(testMessage(id, n), 1, 1)
				must.Do(t, errors.Join(err, r.Free()))
				if st, err := r.Wait(); st != emptyStatus || err != nil || r.Active() {
					return fmt.Errorf("one that was freed: %+v, %v", st, err)
				}
				continue
			}
			buf := make([]byte, n)
			st, err := w.Recv(buf, 0, 1)
			must.Do(t, errors.Join(err, checkMessage(buf, st, Status{0, 1, n, false}, id)))
		}
		return nil
	})
}
