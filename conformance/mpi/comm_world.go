package mpi

import "time"

var worldPrograms = programs{
	"mpi/world/ranks": func(t *T) {
		for _, c := range []*T{t, t.dup()} {
			all := make([]byte, 8*5)
			t.must("Allgather", c.Allgather(word(uint64(10*t.Rank()+c.Rank())), all))
			t.expectEqual("the ranks", all, words(0, 11, 22, 33, 44))
		}
	},
	"mpi/world/time-goes-on": func(t *T) {
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
}
