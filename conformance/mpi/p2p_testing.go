package mpi

import "github.com/fabrictest/fabrictest/mpi"

var testCases = []Case{{
	ID: "mpi/test/single", Cite: rule("mpi/3.7.3/3"),
	Title:   "Test is false while the request is not complete, and true in the end",
	Sends:   "Test of a receive before its message was sent, and then until it is true",
	Expects: "false, then true once with the status; an empty one after that",
	Defects: []string{"TestNever", "CompleteStaysActive"}, Run: onSizes(someSizes, func(t *T, i, n int) {
		t.awaitSignal(1)
		t.send(data(i, n), 1, i)
	}, func(t *T, i, n int) {
		p := t.irecv(n, 0, i)
		t.expectPending("a receive whose message was not sent", p)
		t.signal(0)
		st := pollUntil(t, "the receive is complete", p.Test)
		t.expectStatus("the receive", st, 0, i, n)
		t.expectBuffer("the message", p.recvBuf, data(i, n))
		t.check(!p.Active(), "the request not to be active", "active")
	}),
}, {
	ID: "mpi/test/all-or-nothing", Cite: rule("mpi/3.7.5/7"),
	Title:   "TestAll that is false has ended none of the requests",
	Sends:   "TestAll over five receives while four have their messages, then the fifth",
	Expects: "false and all requests active; then true with all statuses",
	Defects: []string{"TestAllTakesSome", "TestAllNever"}, Run: byRank(func(t *T) {
		t.awaitSignal(1)
		for i := range 4 {
			t.send(data(i, lenOfFive(i)), 1, i)
		}
		t.awaitSignal(1)
		t.send(data(4, 34), 1, 4)
	}, func(t *T) {
		f := t.postFiveReceives()
		for i := range 4 {
			pollUntil(t, "the first four are complete", f.requests[i].GetStatus)
		}
		_, done := result2(t.w.TestAll(f.requests))(t, "TestAll")
		t.check(!done, "TestAll to be false", "true")
		for _, r := range f.requests {
			t.check(r.Active(), "requests to be active after a TestAll that is false", "an inactive one")
		}
		t.signal(0)
		sts := pollUntil(t, "TestAll is true", func() ([]Status, bool, error) { return t.w.TestAll(f.requests) })
		for i, st := range sts {
			f.expectComplete(i, st)
		}
	}),
}, {
	ID: "mpi/test/any", Cite: rule("mpi/3.7.5/1"),
	Title:   "TestAny finds each request once, and then none",
	Sends:   "TestAny over five receives until it says that there is none",
	Expects: "five indices, each with its message, then true with Undefined",
	Defects: []string{"TestNever", "IndexOff", "CompleteStaysActive"}, Run: withFiveReceives(shuffled, func(t *T, f *fiveReceives) {
		t.waitUntil("TestAny has found all", func() bool {
			i, st, done, err := t.w.TestAny(f.requests)
			t.must("TestAny", err)
			switch {
			case !done:
				t.check(i == mpi.Undefined, "Undefined where none is complete", "%d", i)
			case i == mpi.Undefined:
				t.check(f.complete == 5, "all requests before Undefined", "%d", f.complete)
				return true
			default:
				f.expectComplete(i, st)
			}
			return false
		})
	}),
}, {
	ID: "mpi/test/some", Cite: rule("mpi/3.7.5/6"),
	Title:   "TestSome finds each request once",
	Sends:   "TestSome over five receives and two null requests until all are through",
	Expects: "each index once, with its message",
	Defects: []string{"TestNever", "SomeTwice", "IndexOff"}, Run: withFiveReceives(shuffled, func(t *T, f *fiveReceives) {
		all := append(append([]Request{nil}, f.requests...), nil)
		t.waitUntil("TestSome has found all", func() bool {
			is, sts := result2(t.w.TestSome(all))(t, "TestSome")
			t.check(len(is) == len(sts), "as many statuses as indices", "%v, %v", is, sts)
			for k, i := range is {
				f.expectComplete(i-1, sts[k])
			}
			return f.complete == 5
		})
	}),
}, {
	ID: "mpi/test/get-status", Cite: rule("mpi/3.7.6/1"),
	Title:   "GetStatus tells that a request is complete, and leaves it so",
	Sends:   "GetStatus before and after the message, several times, then Wait",
	Expects: "false; the same status every time; the status again of Wait",
	Defects: []string{"GetStatusFrees"}, Run: byRank(func(t *T) {
		t.awaitSignal(1)
		t.send(data(1, 40), 1, 5)
	}, func(t *T) {
		p := t.irecv(40, mpi.AnySource, mpi.AnyTag)
		_, done := result2(p.GetStatus())(t, "GetStatus")
		t.check(!done, "GetStatus to be false", "true")
		t.signal(0)
		st := pollUntil(t, "GetStatus is true", p.GetStatus)
		for range 3 {
			t.expectStatus("GetStatus", st, 0, 5, 40)
			t.check(p.Active(), "the request to be active", "inactive")
			st, done = result2(p.GetStatus())(t, "GetStatus")
			t.check(done, "GetStatus to stay true", "false")
		}
		t.expectStatus("Wait", t.expectWait(p, data(1, 40)), 0, 5, 40)
		st, done = result2(p.GetStatus())(t, "GetStatus")
		t.check(done && st == empty, "true and an empty status of what is through", "%v %+v", done, st)
	}),
}}
