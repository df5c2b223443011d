package mpi

var emptyCases = []Case{{
	ID: "mpi/empty/arrives", Title: "A message without data is a message",
	Cite: rule("3.2.2", "mpi/3.2.2/1"), Defects: []string{"EmptyDropped"},
	Sends: "empty messages in all modes, from nil and from an empty slice", Expects: "receives with count 0",
	Run: func(t *T) {
		t.onRank(1, func() {
			p := t.irecv(8, 0, 4)
			t.signal(0)
			for i := range 4 {
				t.expectStatus("the receive", t.expectRecv(nil, 0, i), 0, i, 0)
			}
			t.expectStatus("the receive", t.expectWait(p, nil), 0, 4, 0)
		})
		t.onRank(0, func() {
			t.must("AttachBuffer", t.w.AttachBuffer(1000))
			t.awaitSignal(1)
			t.must("Send", t.Send(nil, 1, 0))
			t.must("Ssend", t.Ssend([]byte{}, 1, 1))
			t.must("Bsend", t.Bsend(nil, 1, 2))
			t.wait(t.isend([]byte{}, 1, 3))
			t.must("Rsend", t.Rsend(nil, 1, 4))
			t.must("DetachBuffer", t.w.DetachBuffer())
		})
	},
}, {
	ID: "mpi/empty/keeps-its-place", Title: "A message without data keeps its place among others",
	Cite: rule("3.5", "mpi/3.5/1", "mpi/3.2.2/1"), Defects: []string{"EmptyOvertakes", "EmptyDropped"},
	Sends: "messages of 0, 10, 0, large, 0 … bytes with one tag", Expects: "the counts and contents in that order",
	Run: func(t *T) {
		sizes := []int{0, 10, 0, largeSize, 0, 0, 5000, 0}
		t.onRank(0, func() {
			var rs []Request
			for i, n := range sizes {
				rs = append(rs, t.isend(data(i, n), 1, 1))
			}
			t.waitAll(rs...)
		})
		t.onRank(1, func() {
			for i, n := range sizes {
				t.expectRecv(data(i, n), 0, 1)
			}
		})
	},
}, {
	ID: "mpi/empty/into-no-buffer", Title: "An empty message can be received without a buffer",
	Cite: rule("3.2.2", "mpi/3.2.2/1"), Defects: []string{"EmptyDropped", "CompleteStaysActive"},
	Sends: "empty messages to receives with nil", Expects: "count 0 and no error",
	Run: func(t *T) {
		other := 1 - t.Rank()
		r, err := t.Irecv(nil, other, 1)
		t.mustStart("Irecv", r, err)
		t.send(nil, other, 1)
		t.expectStatus("the receive", t.wait(r), other, 1, 0)
		t.check(!r.Active(), "a request that was waited for not to be active", "active")
	},
}, {
	ID: "mpi/empty/probed", Title: "A probe finds a message without data",
	Cite: rule("3.8.1", "mpi/3.8.1/1"), Defects: []string{"EmptyDropped", "IprobeNever"},
	Sends: "an empty message, probed until it is there", Expects: "count 0, and the message",
	Run: func(t *T) {
		t.onRank(0, func() { t.send(nil, 1, 6) })
		t.onRank(1, func() {
			t.waitUntil("an empty message is probed", func() bool {
				st, found, err := t.Iprobe(0, 6)
				t.must("Iprobe", err)
				if found {
					t.expectStatus("the probe", st, 0, 6, 0)
				}
				return found
			})
			t.expectRecv(nil, 0, 6)
		})
	},
}}
