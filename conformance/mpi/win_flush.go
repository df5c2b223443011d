package mpi

import (
	"bytes"

	"github.com/fabrictest/fabrictest/mpi"
)

// overwrittenBuffer returns the body of a case in which rank 0 overwrites the origin buffer after
// each operation. write writes the i-th 2000 bytes of the window of rank 1, and completes the
// operation locally.
func overwrittenBuffer(kind mpi.LockKind, write func(w *W, b []byte, i int)) func(*T) {
	const writes, size = 12, 2000
	return func(t *T) {
		w := t.window(writes * size)
		if t.Rank() == 0 {
			b := make([]byte, size)
			w.lock(kind, 1)
			for i := range writes {
				copy(b, data(i, size))
				write(w, b, i)
				copy(b, bytes.Repeat([]byte{0xdd}, size))
			}
			w.unlock(1)
			t.signal(1)
		} else {
			t.awaitSignal(0)
			for i := range writes {
				w.expectOwn("the data of Put", i*size, data(i, size))
			}
		}
	}
}

var flushCases = []Case{{
	ID: "mpi/flush/completes-at-the-target", Cite: rule("mpi/11.5.4/1"), Setup: ranks(3),
	Title:   "When Flush returns, what was put is in the target's memory, though the lock is still held",
	Sends:   "a put, Flush, a word to a third rank, which gets it from the target; all hold shared locks",
	Expects: "the data",
	Defects: []string{"FlushEarly", "PutsCut"}, Run: func(t *T) {
		w := t.window(5000)
		w.lockAll()
		for i := range 10 {
			switch t.Rank() {
			case 0:
				w.flushedPut(data(i, 5000), 1, 0)
				t.signal(2)
				t.awaitSignal(2)
			case 2:
				t.awaitSignal(0)
				w.expectFlushedGet("the data of Put", data(i, 5000), 1, 0)
				t.signal(0)
			}
		}
		w.unlockAll()
	},
}, {
	ID: "mpi/flush/all", Cite: rule("mpi/11.5.4/1"), Setup: ranks(4),
	Title:   "FlushAll completes the operations on all targets",
	Sends:   "puts to all ranks, FlushAll, words to all, which look; and gets from all, FlushAll",
	Expects: "the data everywhere",
	Defects: []string{"FlushAllMisses", "FlushEarly"}, Run: func(t *T) {
		w := t.window(1000)
		w.lockAll()
		for i := range 8 {
			if t.Rank() == 0 {
				for k := range 4 {
					w.put(data(10*i+k, 1000), k, 0)
				}
				t.must("FlushAll", w.FlushAll())
				t.signal(1, 2, 3)
				t.awaitSignal(1, 2, 3)
				flush := func() { t.must("FlushAll", w.FlushAll()) }
				w.expectGets(0, 1000, flush, func(rank int) []byte { return data(10*i+rank, 1000) })
				continue
			}
			t.awaitSignal(0)
			w.sync()
			t.expectEqual("the window", w.Memory(), data(10*i+t.Rank(), 1000))
			t.signal(0)
		}
		w.unlockAll()
	},
}, {
	ID: "mpi/flush/local", Cite: rule("mpi/11.5.4/2"),
	Title:   "When FlushLocal returns, the buffers are the program's again",
	Sends:   "puts and accumulates from one buffer, FlushLocal or FlushLocalAll, and another content at once",
	Expects: "the contents of the time of the calls",
	Defects: []string{"FlushLocalEarly"}, Run: overwrittenBuffer(mpi.Shared, func(w *W, b []byte, i int) {
		if i%3 == 2 {
			w.accumulate(b, 1, i*2000, mpi.Uint64, mpi.Sum)
		} else {
			w.put(b, 1, i*2000)
		}
		if i%2 == 0 {
			w.t.must("FlushLocal", w.FlushLocal(1))
		} else {
			w.t.must("FlushLocalAll", w.FlushLocalAll())
		}
	}),
}, {
	ID: "mpi/flush/local-gets", Cite: rule("mpi/11.5.4/2"),
	Title:   "When FlushLocal returns, what was got is there",
	Sends:   "gets of several sizes with FlushLocal and FlushLocalAll",
	Expects: "the data",
	Defects: []string{"FlushLocalEarly", "GetsNothing"}, Run: func(t *T) {
		const room = 100_000
		w := t.window(room)
		w.initOwn(0, data(t.Rank(), room))
		w.lockAll()
		for i, n := range []int{8, 3000, room - 50} {
			a, b := newGuardedBuf(n), newGuardedBuf(n)
			w.get(a.buf, t.other(), i)
			t.must("FlushLocal", w.FlushLocal(t.other()))
			t.expectBuffer("the data of Get", a, data(t.other(), room)[i:i+n])
			w.get(b.buf, t.other(), i+1)
			t.must("FlushLocalAll", w.FlushLocalAll())
			t.expectBuffer("the data of Get", b, data(t.other(), room)[i+1:i+1+n])
		}
		w.unlockAll()
	},
}, {
	ID: "mpi/flush/message-passing", Cite: rule("mpi/11.5.4/1", "mpi/11.4/1"),
	Title:   "Put, Flush, a flag and Sync make a channel of shared memory",
	Sends:   "under LockAll, rank 0 puts data, flushes, and raises a flag by an accumulate; rank 1 polls its own flag by an atomic read",
	Expects: "the data of the round when the flag is up",
	Defects: []string{"FlushEarly", "FetchesNew"}, Run: func(t *T) {
		w := t.window(512)
		w.lockAll()
		for i := range 15 {
			round := uint64(i + 1)
			if t.Rank() == 0 {
				w.flushedPut(data(i, 500), 1, 8)
				was := w.fetch(round, 1, 0, mpi.Replace)
				t.check(was == round-1, "the flag of the round before", "%d in round %d", was, round)
				t.awaitSignal(1)
			} else {
				t.waitUntil("the flag is up", func() bool { return w.fetch(0, 1, 0, mpi.NoOp) == round })
				w.sync()
				t.expectEqual("the data behind the flag", w.Memory()[8:508], data(i, 500))
				t.signal(0)
			}
		}
		w.unlockAll()
	},
}, {
	ID: "mpi/flush/of-nothing", Cite: rule("mpi/11.5.4/3"),
	Title:   "Flushes and Sync with nothing to do return",
	Sends:   "every flush under a lock before any operation, after one and twice; an operation on nobody among them",
	Expects: "no error, and the data that was got",
	Defects: []string{"NullRefused", "GetsNothing"}, Run: func(t *T) {
		w := t.window(8)
		w.initOwn(0, word(uint64(50+t.Rank())))
		w.lockAll()
		b := make([]byte, 8)
		for range 2 {
			t.must("Flush", w.Flush(t.other()))
			t.must("FlushLocal", w.FlushLocal(t.other()))
			t.must("FlushAll", w.FlushAll())
			t.must("FlushLocalAll", w.FlushLocalAll())
			t.must("Sync", w.Sync())
			t.must("Put", w.Put(b, mpi.ProcNull, 0))
			w.get(b, t.other(), 0)
			t.must("FlushAll", w.FlushAll())
			t.expectEqual("the data of Get", b, word(uint64(50+t.other())))
		}
		w.unlockAll()
	},
}}
