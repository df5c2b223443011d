package mpi

var emptyCases = []Case{{
	ID: "mpi/empty/arrives", Cite: rule("mpi/3.2.2/1"),
	Title:   "A message without data is a message",
	Sends:   "empty messages in all modes, from nil and from an empty slice",
	Expects: "receives with count 0",
	Defects: []string{"EmptyDropped"}, Run: byRank(func(t *T) {
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
}, {
	ID: "mpi/empty/keeps-its-place", Cite: rule("mpi/3.5/1", "mpi/3.2.2/1"),
	Title:   "A message without data keeps its place among others",
	Sends:   "messages of 0, 10, 0, large, 0 … bytes with one tag",
	Expects: "the counts and contents in that order",
	Defects: []string{"EmptyOvertakes", "EmptyDropped"}, Run: func(t *T) {
		t.expectInOrder([]int{0, 10, 0, largeSize, 0, 0, 5000, 0})
	},
}, {
	ID: "mpi/empty/into-no-buffer", Cite: rule("mpi/3.2.2/1"),
	Title:   "An empty message can be received without a buffer",
	Sends:   "empty messages to receives with nil",
	Expects: "count 0 and no error",
	Defects: []string{"EmptyDropped", "CompleteStaysActive"}, Run: func(t *T) {
		r := started(t.Irecv(nil, t.other(), 1))(t, "Irecv")
		t.send(nil, t.other(), 1)
		t.expectStatus("the receive", t.wait(r), t.other(), 1, 0)
		t.check(!r.Active(), "a request that was waited for not to be active", "active")
	},
}, {
	ID: "mpi/empty/probed", Cite: rule("mpi/3.8.1/1"),
	Title:   "A probe finds a message without data",
	Sends:   "an empty message, probed until it is there",
	Expects: "count 0, and the message",
	Defects: []string{"EmptyDropped", "IprobeNever"}, Run: byRank(func(t *T) { t.send(nil, 1, 6) }, func(t *T) {
		t.expectStatus("the probe", t.expectProbe(0, 6), 0, 6, 0)
		t.expectRecv(nil, 0, 6)
	}),
}}
