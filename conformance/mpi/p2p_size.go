package mpi

var sizePrograms = programs{
	"mpi/size/unexpected": func(t *T) {
		for i, n := range allSizes() {
			t.onRank(0, func() {
				r := t.isend(data(i, n), 1, 1)
				t.signal(1)
				t.wait(r)
			})
			t.onRank(1, func() {
				t.awaitSignal(0)
				t.expectRecv(data(i, n), 0, 1)
			})
		}
	},
	"mpi/size/posted": func(t *T) {
		for i, n := range allSizes() {
			t.onRank(0, func() {
				t.awaitSignal(1)
				t.send(data(i, n), 1, 1)
			})
			t.onRank(1, func() {
				p := t.irecv(n, 0, 1)
				t.signal(0)
				t.expectWait(p, data(i, n))
			})
		}
	},
	"mpi/size/synchronous": func(t *T) {
		for i, n := range allSizes() {
			if n > 1<<18 {
				break
			}
			t.onRank(0, func() { t.must("Ssend", t.Ssend(data(i, n), 1, 1)) })
			t.onRank(1, func() {
				if i%2 == 0 {
					t.idle()
				}
				t.expectRecv(data(i, n), 0, 1)
			})
		}
	},
	"mpi/size/near-neighbours": func(t *T) {
		n, me := t.Size(), t.Rank()
		for i, size := range []int{0, 1, 100, 2048, 10_000, 66_000, largeSize} {
			var ps []*pending
			var rs []Request
			for k := range n {
				ps = append(ps, t.irecv(size, k, i))
			}
			for k := range n {
				rs = append(rs, t.isend(data(10*me+k, size), k, i))
			}
			for k, p := range ps {
				t.expectWait(p, data(10*k+me, size))
			}
			t.waitAll(rs...)
		}
	},
}
