package mpi

import (
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/mpi"
)

// fiveReceives are receives from rank 0 with tags 0 to 4, and the requests of them.
type fiveReceives struct {
	t        *T
	receives []*pending
	requests []Request
	seen     [5]bool // those that expectComplete was called for
	complete int
}

// lenOfFive returns the length of the message with a tag, another one for each of the five.
func lenOfFive(tag int) int { return 30 + tag }

// postFiveReceives posts five receives, and signals rank 0.
func (t *T) postFiveReceives() *fiveReceives {
	f := &fiveReceives{t: t}
	f.receives, f.requests = startReceives(5, func(i int) *pending { return t.irecv(64, 0, i) })
	t.signal(0)
	return f
}

// withFiveReceives returns the body of a case in which rank 1 posts five receives and runs check.
// Rank 0 sends a message for each tag in turn, the last after a pause in which the others arrive.
func withFiveReceives(tags []int, check func(t *T, f *fiveReceives)) func(*T) {
	return byRank(func(t *T) {
		t.awaitSignal(1)
		for k, tag := range tags {
			if k == len(tags)-1 {
				t.idle()
			}
			t.send(data(tag, lenOfFive(tag)), 1, tag)
		}
	}, func(t *T) { check(t, t.postFiveReceives()) })
}

// expectComplete ends the rank unless receive i is inactive, has this status and its message, and
// was not passed to expectComplete before.
func (f *fiveReceives) expectComplete(i int, st Status) {
	f.t.check(i >= 0 && i < 5 && !f.seen[i], "an index that was not there before", "%d, after %v", i, f.seen)
	f.seen[i] = true
	f.complete++
	f.t.expectStatus(fmt.Sprintf("receive %d", i), st, 0, i, lenOfFive(i))
	f.t.expectBuffer("the message", f.receives[i].recvBuf, data(i, lenOfFive(i)))
	f.t.check(!f.receives[i].Active(), "a completed request not to be active", "active")
}

// shuffled are the tags of the five messages in an order of sending.
var shuffled = []int{3, 0, 4, 2, 1}

var waitCases = []Case{{
	ID: "mpi/wait/all", Cite: rule("mpi/3.7.5/3"),
	Title:   "WaitAll returns when all are complete, with their statuses in the order of the requests",
	Sends:   "five receives, messages in another order",
	Expects: "each status where its request is",
	Defects: []string{"StatusesReversed", "WaitAllMissesLast"}, Run: withFiveReceives([]int{3, 0, 2, 1, 4}, func(t *T, f *fiveReceives) {
		for i, st := range t.waitAll(f.requests...) {
			f.expectComplete(i, st)
		}
	}),
}, {
	ID: "mpi/wait/all-with-nothing-among-them", Cite: rule("mpi/3.7.5/4"),
	Title:   "WaitAll passes over null and inactive requests, with an empty status for each",
	Sends:   "null requests, a persistent one that was not started and one that is through between receives",
	Expects: "empty statuses of those, messages of the others",
	Defects: []string{"NilIsRankZero", "InactiveHangs"}, Run: withFiveReceives(shuffled, func(t *T, f *fiveReceives) {
		idle := started(t.RecvInit(make([]byte, 8), 0, 77))(t, "RecvInit")
		sts := t.waitAll(f.requests[0], nil, f.requests[1], idle, f.requests[2])
		f.expectComplete(0, sts[0])
		f.expectComplete(1, sts[2])
		f.expectComplete(2, sts[4])
		t.check(sts[1] == empty && sts[3] == empty, "empty statuses of a null and an inactive request", "%+v, %+v", sts[1], sts[3])
		sts = t.waitAll(f.requests[0], f.requests[3], f.requests[4], nil)
		t.check(sts[0] == empty && sts[3] == empty, "empty statuses of one that is through and a null one", "%+v, %+v", sts[0], sts[3])
		f.expectComplete(3, sts[1])
		f.expectComplete(4, sts[2])
		t.waitAll(nil, nil)
		t.waitAll()
		t.must("Free", idle.Free())
	}),
}, {
	ID: "mpi/wait/any", Cite: rule("mpi/3.7.5/1"),
	Title:   "WaitAny returns one that is complete, each once, and Undefined when none is left",
	Sends:   "WaitAny over five receives, six times",
	Expects: "five different indices, each with its message; then Undefined and an empty status",
	Defects: []string{"IndexOff", "CompleteStaysActive", "NoneIsFirst"}, Run: withFiveReceives(shuffled, func(t *T, f *fiveReceives) {
		for range 5 {
			f.expectComplete(result2(t.w.WaitAny(f.requests))(t, "WaitAny"))
		}
		i, st := result2(t.w.WaitAny(f.requests))(t, "WaitAny")
		t.check(i == mpi.Undefined && st == empty, "Undefined and an empty status", "%d, %+v", i, st)
	}),
}, {
	ID: "mpi/wait/any-of-those-that-can", Cite: rule("mpi/3.7.5/1"),
	Title:   "WaitAny returns when one can complete, though the others cannot",
	Sends:   "WaitAny over five receives, of which one has a message; the rest is sent after an answer",
	Expects: "that one, then the others",
	Defects: []string{"IndexOff", "TagIgnored"}, Run: byRank(func(t *T) {
		t.awaitSignal(1)
		for _, i := range shuffled {
			t.send(data(i, lenOfFive(i)), 1, i)
			t.awaitSignal(1)
		}
	}, func(t *T) {
		f := t.postFiveReceives()
		for _, want := range shuffled {
			i, st := result2(t.w.WaitAny(f.requests))(t, "WaitAny")
			t.check(i == want, fmt.Sprintf("index %d", want), "%d", i)
			f.expectComplete(i, st)
			t.signal(0)
		}
	}),
}, {
	ID: "mpi/wait/any-of-none", Cite: rule("mpi/3.7.5/2"), Setup: ranks(1),
	Title:   "WaitAny, WaitSome and their tests know that there is nothing to wait for",
	Sends:   "each of them on no request, on null ones, and on one that is inactive",
	Expects: "Undefined or no indices, at once; TestAny and TestAll true",
	Defects: []string{"NoneIsFirst", "InactiveHangs", "InactiveTestsFalse"}, Run: func(t *T) {
		idle := started(t.RecvInit(make([]byte, 8), 0, 77))(t, "RecvInit")
		for _, rs := range [][]Request{nil, {nil, nil}, {idle}, {nil, idle}} {
			i, st := result2(t.w.WaitAny(rs))(t, "WaitAny")
			t.check(i == mpi.Undefined && st == empty, "Undefined and an empty status of WaitAny", "%d %+v", i, st)
			is, sts := result2(t.w.WaitSome(rs))(t, "WaitSome")
			t.check(len(is) == 0 && len(sts) == 0, "no index of WaitSome", "%v %v", is, sts)
			i, st, done, err := t.w.TestAny(rs)
			t.must("TestAny", err)
			t.check(done && i == mpi.Undefined && st == empty, "true with Undefined of TestAny", "%v %d %+v", done, i, st)
			is, sts = result2(t.w.TestSome(rs))(t, "TestSome")
			t.check(len(is) == 0 && len(sts) == 0, "no index of TestSome", "%v %v", is, sts)
			sts, done = result2(t.w.TestAll(rs))(t, "TestAll")
			t.check(done && len(sts) == len(rs), "true of TestAll", "%v %v", done, sts)
		}
	},
}, {
	ID: "mpi/wait/some", Cite: rule("mpi/3.7.5/6"),
	Title:   "WaitSome returns at least one, every request once, with its own status",
	Sends:   "WaitSome over five receives until there is none",
	Expects: "each index once, with its message",
	Defects: []string{"SomeTwice", "IndexOff", "CompleteStaysActive"}, Run: withFiveReceives(shuffled, func(t *T, f *fiveReceives) {
		for f.complete < 5 {
			is, sts := result2(t.w.WaitSome(f.requests))(t, "WaitSome")
			t.check(len(is) > 0 && len(is) == len(sts), "indices, and as many statuses", "%v, %v", is, sts)
			for k, i := range is {
				f.expectComplete(i, sts[k])
			}
		}
	}),
}, {
	ID: "mpi/wait/against-the-order", Cite: rule("mpi/3.7.3/1"),
	Title:   "Requests can be waited for in any order",
	Sends:   "five receives waited for from the one whose message comes last",
	Expects: "the messages",
	Defects: []string{"InactiveHangs", "TagIgnored", "CompleteStaysActive"}, Run: withFiveReceives(shuffled, func(t *T, f *fiveReceives) {
		turn := slices.Clone(shuffled)
		slices.Reverse(turn)
		for _, i := range turn {
			f.expectComplete(i, t.wait(f.requests[i]))
		}
		for _, r := range f.requests {
			t.check(t.wait(r) == empty, "an empty status the second time", "another")
		}
	}),
}, {
	ID: "mpi/wait/sends-and-receives", Cite: rule("mpi/3.7.5/3"), Setup: ranks(4),
	Title:   "Sends and receives can be waited for together",
	Sends:   "all sends to and receives from all ranks in one WaitAll, small and large",
	Expects: "all contents",
	Defects: []string{"StatusesReversed"}, Run: func(t *T) {
		n, me := t.Size(), t.Rank()
		size := func(k int) int { return someSizes[2+(me+k)%3] }
		sends := startAll(n, func(k int) Request { return t.isend(data(10*me+k, size(k)), k, 1) })
		ps, rs := startReceives(n, func(k int) *pending { return t.irecv(size(k), k, 1) })
		for i, st := range t.waitAll(append(sends, rs...)...)[n:] {
			t.expectStatus("the receive", st, i, 1, size(i))
			t.expectBuffer("the message", ps[i].recvBuf, data(10*i+me, size(i)))
		}
	},
}}
