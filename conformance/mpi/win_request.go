package mpi

import (
	"bytes"

	"github.com/fabrictest/fabrictest/mpi"
)

var rmaRequestPrograms = programs{
	"mpi/rput/buffer-is-free": func(t *T) {
		const n = 12
		w := t.window(n * 2000)
		t.onRank(0, func() {
			b := make([]byte, 2000)
			w.lock(mpi.Exclusive, 1)
			for i := range n {
				copy(b, data(i, 2000))
				var r Request
				var err error
				if i%3 == 2 {
					r, err = w.Raccumulate(b, 1, i*2000, mpi.Uint64, mpi.Sum)
				} else {
					r, err = w.Rput(b, 1, i*2000)
				}
				t.wait(t.mustStart("a request", r, err))
				copy(b, bytes.Repeat([]byte{0xdd}, 2000))
			}
			w.unlock(1)
			t.signal(1)
		})
		t.onRank(1, func() {
			t.awaitSignal(0)
			for i := range n {
				w.expectOwn("what was put", i*2000, data(i, 2000))
			}
		})
		w.free()
	},
	"mpi/rget/data-is-there": func(t *T) {
		const room = 60_000
		w := t.window(room)
		w.writeOwn(0, data(t.Rank(), room))
		t.barrier()
		w.lockAll()
		sizes := []int{8, 5000, room}
		var rs []Request
		var rooms []*guardedBuf
		for _, n := range sizes {
			for k := range 3 {
				r := newGuardedBuf(n)
				req, err := w.Rget(r.buf, k, 0)
				rs, rooms = append(rs, t.mustStart("Rget", req, err)), append(rooms, r)
			}
		}
		for range rs {
			i, _, err := t.w.WaitAny(rs)
			t.must("WaitAny", err)
			t.check(i >= 0 && i < len(rs), "an index", "%d", i)
			n := sizes[i/3]
			t.expectBuffer("what was got", rooms[i], data(i%3, room)[:n])
		}
		w.unlockAll()
		t.barrier()
		w.free()
	},
	"mpi/rget-accumulate/result-is-there": func(t *T) {
		w := t.window(8)
		w.lock(mpi.Shared, 0)
		last := int64(-1)
		for range 20 {
			old := bytes.Repeat([]byte{0xff}, 8)
			r, err := w.RgetAccumulate(word(1), old, 0, 0, mpi.Uint64, mpi.Sum)
			t.wait(t.mustStart("RgetAccumulate", r, err))
			t.check(int64(number(old)) > last && number(old) < 60, "a number above the last and below 60", "%d after %d", int64(number(old)), last)
			last = int64(number(old))
		}
		w.unlock(0)
		t.barrier()
		t.onRank(0, func() { w.expectOwn("the sum", 0, word(60)) })
		w.free()
	},
	"mpi/rput/in-lists": func(t *T) {
		other := 1 - t.Rank()
		w := t.window(2000)
		w.writeOwn(0, data(10+t.Rank(), 1000))
		t.barrier()
		w.lock(mpi.Shared, other)
		put, err := w.Rput(data(t.Rank(), 1000), other, 1000)
		t.mustStart("Rput", put, err)
		r := newGuardedBuf(1000)
		get, err := w.Rget(r.buf, other, 0)
		t.mustStart("Rget", get, err)
		p, s := t.irecv(largeSize, other, 1), t.isend(data(20+t.Rank(), largeSize), other, 1)
		t.waitAll(put, s, get, p.Request)
		t.expectBuffer("what was got", r, data(10+other, 1000))
		t.expectBuffer("the message", p.recvBuf, data(20+other, largeSize))
		w.unlock(other)
		t.barrier()
		w.expectOwn("what was put", 1000, data(other, 1000))
		t.barrier()
		w.free()
	},
}
