package mpi

import "time"

var worldCases = []Case{{
	ID: "mpi/world/ranks", Cite: rule("mpi/6.4.1/1"), Setup: ranks(5),
	Title:   "Every rank is there once",
	Sends:   "an Allgather of the ranks, here and in a duplicate",
	Expects: "0 to 4, each at its place",
	Defects: []string{"GatherReversed", "DupReverses"}, Run: func(t *T) {
		for _, c := range []*T{t, t.dup()} {
			all := make([]byte, 8*5)
			t.must("Allgather", c.Allgather(word(uint64(10*t.Rank()+c.Rank())), all))
			t.expectEqual("the ranks", all, words(0, 11, 22, 33, 44))
		}
	},
}, {
	ID: "mpi/world/time-goes-on", Cite: rule("mpi/8.6/1"),
	Title:   "Wtime does not go back, and Compute takes the time that it was told",
	Sends:   "Wtime around messages and computations",
	Expects: "never less than before, and at least as much more as was computed",
	Defects: []string{"ClockRunsBack", "ComputesNothing"}, Run: func(t *T) {
		last := t.w.Wtime()
		for i := range 20 {
			d := time.Duration(i) * 10 * time.Microsecond
			t.w.Compute(d)
			now := t.w.Wtime()
			t.check(now-last >= d, "the time to go on by what was computed", "%v after %v, computing for %v", now, last, d)
			t.expectUsable()
			last = t.w.Wtime()
			t.check(last >= now, "the time not to go back", "%v after %v", last, now)
		}
	},
}}
