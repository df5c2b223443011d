package mpi

import "github.com/fabrictest/fabrictest/mpi"

var bufferedCases = []Case{{
	ID: "mpi/buffered/completes-locally", Cite: rule("mpi/3.4/5"),
	Title:   "Bsend returns though nobody receives",
	Sends:   "both ranks send buffered messages up to large ones to each other, then receive",
	Expects: "the contents",
	Defects: []string{"BufferedWaits"}, Run: func(t *T) {
		t.must("AttachBuffer", t.w.AttachBuffer(2*largeSize+8192))
		sizes := []int{0, 10, 3000, largeSize}
		for i, n := range sizes {
			t.must("Bsend", t.Bsend(data(10*t.Rank()+i, n), t.other(), i))
		}
		for i, n := range sizes {
			t.expectRecv(data(10*t.other()+i, n), t.other(), i)
		}
		t.must("DetachBuffer", t.w.DetachBuffer())
	},
}, {
	ID: "mpi/buffered/takes-a-copy", Cite: rule("mpi/3.4/5"),
	Title:   "A buffered message is what was in the buffer when it was sent",
	Sends:   "Bsends and an Ibsend from one buffer, overwritten each time",
	Expects: "the contents of the time of the sends",
	Defects: []string{"LateCopy"}, Run: byRank(func(t *T) {
		t.must("AttachBuffer", t.w.AttachBuffer(4*largeSize))
		buf := make([]byte, largeSize)
		for i, n := range []int{50, 9000, largeSize} {
			copy(buf, data(i, n))
			if i == 1 {
				t.wait(started(t.Ibsend(buf[:n], 1, i))(t, "Ibsend"))
			} else {
				t.must("Bsend", t.Bsend(buf[:n], 1, i))
			}
			clear(buf)
		}
		t.signal(1)
		t.must("DetachBuffer", t.w.DetachBuffer())
	}, func(t *T) {
		t.awaitSignal(0)
		for i, n := range []int{50, 9000, largeSize} {
			t.expectRecv(data(i, n), 0, i)
		}
	}),
}, {
	ID: "mpi/buffered/exhaustion", Cite: rule("mpi/3.6/1"),
	Title:   "A buffered send for which there is no room is an error, and leaves the others alone",
	Sends:   "with 4 KiB attached, messages of 1 KiB that nobody receives yet, and more of them than fit",
	Expects: "ErrBuffer at the latest for the fifth; all that were taken arrive",
	Defects: []string{"BufferUnbounded"}, Run: func(t *T) {
		if t.Rank() == 0 {
			t.must("AttachBuffer", t.w.AttachBuffer(4096))
			n := 0
			var err error
			// Messages that were sent may free their buffer space; large ones to a rank
			// that takes part in nothing cannot all leave.
			for ; n < 5; n++ {
				if err = t.Bsend(data(n, 1024), 1, n); err != nil {
					break
				}
			}
			if err == nil { // the runtime has buffers of its own: ask for what can never fit
				err = t.Bsend(data(9, 5000), 1, 99)
			}
			t.mustFail("Bsend", err, mpi.ErrBuffer)
			t.send(word(uint64(n)), 1, 1000)
			t.must("DetachBuffer", t.w.DetachBuffer())
		} else {
			b := make([]byte, 8)
			result(t.Recv(b, 0, 1000))(t, "Recv")
			for i := range int(number(b)) {
				t.expectRecv(data(i, 1024), 0, i)
			}
			t.expectNoMessage(0, mpi.AnyTag)
		}
		t.expectUsable()
	},
}, {
	ID: "mpi/buffered/needs-a-buffer", Cite: rule("mpi/3.6/1"),
	Title:   "A buffered send without an attached buffer is an error",
	Sends:   "Bsend and Ibsend before AttachBuffer and after DetachBuffer",
	Expects: "ErrBuffer; everything else goes on",
	Defects: []string{"BufferUnbounded", "ErrorWedges"}, Run: func(t *T) {
		for range 2 {
			t.mustFail("Bsend", t.Bsend(data(1, 100), t.other(), 1), mpi.ErrBuffer)
			t.mustFail("Ibsend", errorOf(t.Ibsend(data(1, 100), t.other(), 1)), mpi.ErrBuffer)
			t.must("AttachBuffer", t.w.AttachBuffer(1000))
			t.must("DetachBuffer", t.w.DetachBuffer())
		}
		t.expectUsable()
	},
}, {
	ID: "mpi/buffered/room-comes-back", Cite: rule("mpi/3.6/2"),
	Title:   "Room of messages that were received can be used again",
	Sends:   "20 times as much as fits, an answer after each message",
	Expects: "that all of it is taken and arrives",
	Defects: []string{"BufferLeaks"}, Run: func(t *T) {
		const rounds, n = 40, 3000
		if t.Rank() == 0 {
			t.must("AttachBuffer", t.w.AttachBuffer(2*n+2048))
			for i := range rounds {
				t.must("Bsend", t.Bsend(data(i, n), 1, 1))
				t.awaitSignal(1)
			}
			t.must("DetachBuffer", t.w.DetachBuffer())
		} else {
			for i := range rounds {
				t.expectRecv(data(i, n), 0, 1)
				t.signal(0)
			}
		}
	},
}, {
	ID: "mpi/buffered/detach-waits", Cite: rule("mpi/3.6/3"),
	Title:   "DetachBuffer loses no message that is still in the buffer",
	Sends:   "buffered messages, DetachBuffer, then another buffer and another message",
	Expects: "all of them",
	Defects: []string{"DetachDrops"}, Run: byRank(func(t *T) {
		t.must("AttachBuffer", t.w.AttachBuffer(50_000))
		for i := range 8 {
			t.must("Bsend", t.Bsend(data(i, 4000), 1, i))
		}
		t.must("DetachBuffer", t.w.DetachBuffer())
		t.must("AttachBuffer", t.w.AttachBuffer(10_000))
		t.must("Bsend", t.Bsend(data(8, 4000), 1, 8))
		t.must("DetachBuffer", t.w.DetachBuffer())
	}, func(t *T) {
		t.idle()
		for i := range 9 {
			t.expectRecv(data(i, 4000), 0, i)
		}
	}),
}, {
	ID: "mpi/buffered/one-buffer-at-a-time", Cite: rule("mpi/3.6/4"), Setup: ranks(1),
	Title:   "A second buffer cannot be attached, nor one detached that is not there",
	Sends:   "AttachBuffer twice, DetachBuffer twice",
	Expects: "ErrBuffer the second time",
	Defects: []string{"AttachesTwice"}, Run: func(t *T) {
		t.mustFail("DetachBuffer", t.w.DetachBuffer(), mpi.ErrBuffer)
		t.must("AttachBuffer", t.w.AttachBuffer(1000))
		t.mustFail("AttachBuffer", t.w.AttachBuffer(1000), mpi.ErrBuffer)
		t.must("DetachBuffer", t.w.DetachBuffer())
		t.mustFail("DetachBuffer", t.w.DetachBuffer(), mpi.ErrBuffer)
		t.expectUsable()
	},
}, {
	ID: "mpi/buffered/many-pairs", Cite: rule("mpi/3.4/5"), Setup: ranks(4),
	Title:   "Buffered messages to several ranks arrive, whoever receives first",
	Sends:   "everybody sends buffered to everybody, then receives from the last to the first",
	Expects: "the contents",
	Defects: []string{"BufferedWaits", "MiddleDamaged"}, Run: func(t *T) {
		t.must("AttachBuffer", t.w.AttachBuffer(100_000))
		for to := range t.Size() {
			t.must("Bsend", t.Bsend(data(10*t.Rank()+to, 5000), to, 1))
		}
		for from := t.Size() - 1; from >= 0; from-- {
			t.expectRecv(data(10*from+t.Rank(), 5000), from, 1)
		}
		t.must("DetachBuffer", t.w.DetachBuffer())
	},
}}
