package mpi

import (
	"errors"

	"github.com/fabrictest/fabrictest/mpi"
)

var handlerCases = []Case{{
	ID: "mpi/handler/is-called", Cite: rule("mpi/8.3/1"),
	Title:   "An error handler is called with the error, and decides what the call returns",
	Sends:   "a handler that returns an error of its own, then one that returns none",
	Expects: "one call of it for each error, with class and communicator; what it returns, of the call",
	Defects: []string{"HandlerIgnored", "ErrorsWithoutClass"}, Run: func(t *T) {
		mine := errors.New("mine")
		var seen []error
		t.SetErrorHandler(func(rank, size int, err error) error {
			t.check(rank == t.Rank() && size == t.Size(), "the communicator whose call it was", "rank %d of %d", rank, size)
			seen = append(seen, err)
			return mine
		})
		err := t.Send(nil, 99, 1)
		t.check(errors.Is(err, mine), "the handler's error of Send", "%v", err)
		t.check(len(seen) == 1 && errors.Is(seen[0], mpi.ErrRank), "one ErrRank for the handler", "%v", seen)
		t.SetErrorHandler(func(int, int, error) error { return nil })
		t.must("Send, by a handler that forgives", t.Send(nil, 1-t.Rank(), -3))
		t.expectUsable()
		t.check(len(seen) == 1, "no call of the first handler any more", "%d", len(seen))
	},
}, {
	ID: "mpi/handler/inherited", Cite: rule("mpi/8.3/4"),
	Title:   "Communicators inherit the handler of what they are made of, and keep it",
	Sends:   "a handler set, a duplicate and a part made, another handler set in the duplicate",
	Expects: "each error at the right handler",
	Defects: []string{"HandlerNotInherited", "HandlerOfParent"}, Run: func(t *T) {
		var calls [2]int
		t.SetErrorHandler(func(_, _ int, err error) error { calls[0]++; return err })
		a, b := t.dup(), t.split(0, 0)
		t.mustFail("Send", a.Send(nil, 99, 1), mpi.ErrRank)
		t.mustFail("Send", b.Send(nil, 99, 1), mpi.ErrRank)
		t.check(calls == [2]int{2, 0}, "the inherited handler called twice", "%v", calls)
		a.SetErrorHandler(func(_, _ int, err error) error { calls[1]++; return err })
		t.mustFail("Send", a.Send(nil, 99, 1), mpi.ErrRank)
		t.mustFail("Send", t.Send(nil, 99, 1), mpi.ErrRank)
		t.mustFail("Send", b.Send(nil, 99, 1), mpi.ErrRank)
		t.check(calls == [2]int{4, 1}, "each handler called for its own communicators", "%v", calls)
	},
}, {
	ID: "mpi/handler/of-requests", Cite: rule("mpi/8.3/1"),
	Title:   "Errors of requests go to the handler of their communicator",
	Sends:   "in a duplicate with a handler, a receive that is too short",
	Expects: "the handler called with ErrTruncate by Wait, and its error of Wait",
	Defects: []string{"HandlerIgnored", "TruncatesSilently"}, Run: func(t *T) {
		c := t.dup()
		mine := errors.New("mine")
		var seen []error
		c.SetErrorHandler(func(_, _ int, err error) error { seen = append(seen, err); return mine })
		p := c.irecv(10, t.other(), 1)
		c.send(data(1, 20), t.other(), 1)
		_, err := p.Wait()
		t.check(errors.Is(err, mine), "the handler's error of Wait", "%v", err)
		t.check(len(seen) == 1 && errors.Is(seen[0], mpi.ErrTruncate), "one ErrTruncate for the handler", "%v", seen)
		c.expectUsable()
	},
}, {
	ID: "mpi/handler/of-windows", Cite: rule("mpi/8.3/4"),
	Title:   "Windows inherit the handler of their communicator",
	Sends:   "a handler set in a duplicate, a window made of it, an operation beyond its end",
	Expects: "the handler called with ErrRMARange",
	Defects: []string{"HandlerIgnored", "HandlerNotInherited"}, Run: func(t *T) {
		mine := errors.New("mine")
		var seen []error
		c := t.dup()
		c.SetErrorHandler(func(_, _ int, err error) error { seen = append(seen, err); return mine })
		d := c.dup()
		w := d.window(16)
		w.lockAll()
		err := w.Put(data(1, 8), 0, 16)
		t.check(errors.Is(err, mine), "the handler's error of Put", "%v", err)
		t.check(len(seen) == 1 && errors.Is(seen[0], mpi.ErrRMARange), "one ErrRMARange for the handler", "%v", seen)
		w.unlockAll()
		w.free()
	},
}}
