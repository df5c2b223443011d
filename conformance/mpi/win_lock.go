package mpi

import (
	"time"

	"github.com/fabrictest/fabrictest/mpi"
)

var lockPrograms = programs{
	"mpi/lock/exclusive-counts": func(t *T) {
		w := t.window(8)
		for range 15 {
			w.lock(mpi.Exclusive, 0)
			b := make([]byte, 8)
			w.get(b, 0, 0)
			w.flush(0)
			t.w.Compute(3 * time.Microsecond)
			w.put(word(number(b)+1), 0, 0)
			w.unlock(0)
		}
		t.barrier()
		t.onRank(0, func() { w.expectOwn("the number", 0, word(60)) })
	},
	"mpi/lock/exclusive-is-whole": func(t *T) {
		w := t.window(2048)
		for i := range 15 {
			if t.Rank() == 2 {
				w.lock(mpi.Shared, 0)
				a, b := make([]byte, 8), make([]byte, 8)
				w.get(a, 0, 0)
				w.flush(0)
				t.w.Compute(5 * time.Microsecond)
				w.get(b, 0, 2040)
				w.unlock(0)
				t.check(number(a) == number(b), "two words that are always written together to be the same", "%d and %d", number(a), number(b))
				continue
			}
			v := word(uint64(100*t.Rank() + i))
			w.lock(mpi.Exclusive, 0)
			w.put(v, 0, 0)
			w.flush(0)
			t.w.Compute(5 * time.Microsecond)
			w.put(v, 0, 2040)
			w.unlock(0)
		}
	},
	"mpi/lock/unlock-completes": func(t *T) {
		w := t.window(1 << 19)
		for i, n := range []int{1, 64, 5000, 100_000, 1 << 19} {
			t.onRank(0, func() {
				w.lock(mpi.Exclusive, 1)
				w.put(data(i, n), 1, 0)
				w.unlock(1)
				t.signal(1)
				t.awaitSignal(1)
			})
			t.onRank(1, func() {
				t.awaitSignal(0)
				w.expectOwn("what was put", 0, data(i, n))
				t.signal(0)
			})
		}
	},
	"mpi/lock/get": func(t *T) {
		const room = 300_000
		w := t.window(room)
		w.writeOwn(0, data(t.Rank(), room))
		t.barrier()
		for i, n := range []int{1, 64, 5000, 100_000, room - 10} {
			r := newGuardedBuf(n)
			w.lock(mpi.Shared, t.other())
			w.get(r.buf, t.other(), i)
			w.unlock(t.other())
			t.expectBuffer("what was got", r, data(t.other(), room)[i:i+n])
		}
	},
	"mpi/lock/several-targets": func(t *T) {
		w := t.window(64)
		for origin := range 2 {
			t.onRank(origin, func() {
				for k := range 4 {
					w.lock(mpi.Exclusive, k)
				}
				for k := range 4 {
					w.put(data(10*origin+k, 32), k, 32*origin)
				}
				for _, k := range []int{2, 0, 3, 1} {
					w.unlock(k)
				}
			})
			t.barrier()
		}
		for origin := range 2 {
			w.expectOwn("what was put", 32*origin, data(10*origin+t.Rank(), 32))
		}
	},
	"mpi/lock/own-window": func(t *T) {
		w := t.window(16)
		for range 15 {
			w.lock(mpi.Exclusive, 0)
			if t.Rank() == 0 {
				v := number(w.Memory())
				t.w.Compute(10 * time.Microsecond)
				t.idle()
				copy(w.Memory(), word(v+1))
			} else {
				b := make([]byte, 8)
				w.get(b, 0, 0)
				w.flush(0)
				w.put(word(number(b)+1), 0, 0)
			}
			w.unlock(0)
		}
		t.barrier()
		t.onRank(0, func() { w.expectOwn("the number", 0, word(45)) })
		w.lock(mpi.Exclusive, t.Rank())
		w.put(data(t.Rank(), 8), t.Rank(), 8)
		w.unlock(t.Rank())
		w.expectOwn("what was put to oneself", 8, data(t.Rank(), 8))
	},
	"mpi/lock/all-by-all": func(t *T) {
		n, me := t.Size(), t.Rank()
		w := t.window(n * 100)
		w.lockAll()
		for k := range n {
			w.put(data(10*me+k, 100), k, me*100)
		}
		t.must("FlushAll", w.FlushAll())
		t.barrier()
		got := newGuardedBuf(n * 100)
		next := (me + 1) % n
		w.get(got.buf, next, 0)
		w.flush(next)
		var want []byte
		for k := range n {
			want = append(want, data(10*k+next, 100)...)
		}
		t.expectBuffer("what all have put", got, want)
		t.barrier()
		w.unlockAll()
	},
	"mpi/lock/again-and-again": func(t *T) {
		w := t.window(24)
		t.onRank(0, func() {
			for i := range 50 {
				w.lock(mpi.Exclusive, 1)
				w.put(data(i, 24), 1, 0)
				w.unlock(1)
				r := newGuardedBuf(24)
				w.lock(mpi.Shared, 1)
				w.get(r.buf, 1, 0)
				w.unlock(1)
				t.expectBuffer("what was put last", r, data(i, 24))
			}
		})
	},
	"mpi/lock/busy-target": func(t *T) {
		const busy = time.Second // much longer than a NIC takes to repeat what was lost on the way
		w := t.window(64)
		t.barrier()
		t.onRank(1, func() { t.w.Compute(busy) })
		t.onRank(0, func() {
			began := t.w.Wtime()
			w.lock(mpi.Exclusive, 1)
			w.put(data(1, 64), 1, 0)
			w.unlock(1)
			r := newGuardedBuf(64)
			w.lock(mpi.Shared, 1)
			w.get(r.buf, 1, 0)
			w.unlock(1)
			t.expectBuffer("what was put", r, data(1, 64))
			took := t.w.Wtime() - began
			t.check(took < busy/2, "the epochs to end while the target computes", "%v, of %v", took, busy)
		})
	},
}
