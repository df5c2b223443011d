package mpi

var emptyPrograms = programs{
	"mpi/empty/arrives": byRank(func(t *T) {
		t.must("AttachBuffer", t.w.AttachBuffer(1000))
		t.awaitSignal(1)
		t.must("Send", t.Send(nil, 1, 0))
		t.must("Ssend", t.Ssend([]byte{}, 1, 1))
		t.must("Bsend", t.Bsend(nil, 1, 2))
		t.wait(t.isend([]byte{}, 1, 3))
		t.must("Rsend", t.Rsend(nil, 1, 4))
		t.must("DetachBuffer", t.w.DetachBuffer())
	}, func(t *T) {
		p := t.irecv(8, 0, 4)
		t.signal(0)
		for i := range 4 {
			t.expectStatus("the receive", t.expectRecv(nil, 0, i), 0, i, 0)
		}
		t.expectStatus("the receive", t.expectWait(p, nil), 0, 4, 0)
	}),
	"mpi/empty/keeps-its-place": func(t *T) {
		sizes := []int{0, 10, 0, largeSize, 0, 0, 5000, 0}
		t.onRank(0, func() {
			rs := startAll(len(sizes), func(i int) Request { return t.isend(data(i, sizes[i]), 1, 1) })
			t.waitAll(rs...)
		})
		t.onRank(1, func() {
			for i, n := range sizes {
				t.expectRecv(data(i, n), 0, 1)
			}
		})
	},
	"mpi/empty/into-no-buffer": func(t *T) {
		r := started(t.Irecv(nil, t.other(), 1))(t, "Irecv")
		t.send(nil, t.other(), 1)
		t.expectStatus("the receive", t.wait(r), t.other(), 1, 0)
		t.check(!r.Active(), "a request that was waited for not to be active", "active")
	},
	"mpi/empty/probed": byRank(func(t *T) { t.send(nil, 1, 6) }, func(t *T) {
		t.expectStatus("the probe", t.expectProbe(0, 6), 0, 6, 0)
		t.expectRecv(nil, 0, 6)
	}),
}
