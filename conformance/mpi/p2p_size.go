package mpi

var sizeCases = []Case{{
	ID: "mpi/size/unexpected", Cite: rule("mpi/3.2.2/2"),
	Title:   "Messages of all sizes arrive whole that come before their receive",
	Sends:   "for sizes from 0 to 1 MiB around all powers of two: a send, then the receive",
	Expects: "every byte",
	Defects: []string{"LastByteLost", "LargeDamaged", "RaggedLost"}, Run: onSizes(sizesUpTo(maxSize), func(t *T, i, n int) {
		r := t.isend(data(i, n), 1, 1)
		t.signal(1)
		t.wait(r)
	}, func(t *T, i, n int) {
		t.awaitSignal(0)
		t.expectRecv(data(i, n), 0, 1)
	}),
}, {
	ID: "mpi/size/posted", Cite: rule("mpi/3.2.2/2"),
	Title:   "Messages of all sizes arrive whole whose receive waits for them",
	Sends:   "the same with the receive first",
	Expects: "every byte",
	Defects: []string{"LastByteLost", "LargeDamaged", "RaggedLost"}, Run: onSizes(sizesUpTo(maxSize), func(t *T, i, n int) {
		t.awaitSignal(1)
		t.send(data(i, n), 1, 1)
	}, func(t *T, i, n int) {
		p := t.irecv(n, 0, 1)
		t.signal(0)
		t.expectWait(p, data(i, n))
	}),
}, {
	ID: "mpi/size/synchronous", Cite: rule("mpi/3.2.2/2"),
	Title:   "Synchronous messages of all sizes arrive whole",
	Sends:   "the same with Ssend, receives of both kinds by turns",
	Expects: "every byte",
	Defects: []string{"LastByteLost", "LargeDamaged", "RaggedLost"}, Run: onSizes(sizesUpTo(1<<18), func(t *T, i, n int) { t.must("Ssend", t.Ssend(data(i, n), 1, 1)) }, func(t *T, i, n int) {
		if i%2 == 0 {
			t.idle()
		}
		t.expectRecv(data(i, n), 0, 1)
	}),
}, {
	ID: "mpi/size/modes", Cite: rule("mpi/3.4/1", "mpi/3.4/2", "mpi/3.4/5", "mpi/3.2.2/2"),
	Title:   "Sends of all modes mean the same at every limit of eager messages",
	Sends:   "for sizes around such limits: an Issend that is probed before its receive, a Bsend, and an Rsend to a posted receive",
	Expects: "the synchronous send pending until its receive, the size in the probe, and every byte",
	Defects: []string{"SyncAtLimitEarly", "SyncOnArrival", "ReadyEmpty"}, Run: func(t *T) {
		t.onRank(0, func() { t.must("AttachBuffer", t.w.AttachBuffer(1<<18)) })
		onSizes(limitSizes, func(t *T, i, n int) {
			r := t.issend(data(i, n), 1, 1)
			t.awaitSignal(1)
			t.expectPending("a synchronous send without a receive", r)
			t.signal(1)
			t.wait(r)
			t.must("Bsend", t.Bsend(data(100+i, n), 1, 2))
			t.must("Rsend", t.Rsend(data(200+i, n), 1, 3))
		}, func(t *T, i, n int) {
			ready := t.irecv(n, 0, 3)
			t.expectStatus("the probe", result(t.Probe(0, 1))(t, "Probe"), 0, 1, n)
			t.idle()
			t.signal(0)
			t.awaitSignal(0)
			t.expectRecv(data(i, n), 0, 1)
			t.expectRecv(data(100+i, n), 0, 2)
			t.expectWait(ready, data(200+i, n))
		})(t)
		t.onRank(0, func() { t.must("DetachBuffer", t.w.DetachBuffer()) })
	},
}, {
	ID: "mpi/size/near-neighbours", Cite: rule("mpi/3.2.2/2"), Setup: inPairs(4),
	Title:   "Ranks of one host and of others exchange messages of all sizes",
	Sends:   "everybody with everybody, two ranks a host, sizes up to large ones",
	Expects: "every byte",
	Defects: []string{"LastByteLost", "LargeDamaged"}, Run: func(t *T) {
		n, me := t.Size(), t.Rank()
		for i, size := range []int{0, 1, 100, 2048, 10_000, 66_000, largeSize} {
			ps := startAll(n, func(k int) *pending { return t.irecv(size, k, i) })
			rs := startAll(n, func(k int) Request { return t.isend(data(10*me+k, size), k, i) })
			for k, p := range ps {
				t.expectWait(p, data(10*k+me, size))
			}
			t.waitAll(rs...)
		}
	},
}}
