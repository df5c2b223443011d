package mpi

import (
	"bytes"

	"github.com/fabrictest/fabrictest/mpi"
)

var rmaRequestCases = []Case{{
	ID: "mpi/rput/buffer-is-free", Cite: rule("mpi/11.3.5/1"),
	Title:   "When the request of an Rput is complete, its buffer is the program's again",
	Sends:   "Rputs and Raccumulates from one buffer, overwritten behind each wait",
	Expects: "the contents of the time of the calls, behind Unlock",
	Defects: []string{"RequestsEarly"}, Run: overwrittenBuffer(mpi.Exclusive, func(w *W, b []byte, i int) {
		if i%3 == 2 {
			w.t.wait(started(w.Raccumulate(b, 1, i*2000, mpi.Uint64, mpi.Sum))(w.t, "Raccumulate"))
		} else {
			w.t.wait(started(w.Rput(b, 1, i*2000))(w.t, "Rput"))
		}
	}),
}, {
	ID: "mpi/rget/data-is-there", Cite: rule("mpi/11.3.5/2"), Setup: ranks(3),
	Title:   "When the request of an Rget is complete, the data is there",
	Sends:   "Rgets of several sizes from all ranks, waited for in any order",
	Expects: "the data at each wait",
	Defects: []string{"RequestsEarly", "GetsNothing", "GetsCut"}, Run: func(t *T) {
		const room = 60_000
		w := t.window(room)
		w.initOwn(0, data(t.Rank(), room))
		w.lockAll()
		sizes := []int{8, 5000, room}
		var rs []Request
		var rooms []*guardedBuf
		for _, n := range sizes {
			for k := range 3 {
				r := newGuardedBuf(n)
				rs, rooms = append(rs, started(w.Rget(r.buf, k, 0))(t, "Rget")), append(rooms, r)
			}
		}
		for range rs {
			i, _ := result2(t.w.WaitAny(rs))(t, "WaitAny")
			t.check(i >= 0 && i < len(rs), "an index", "%d", i)
			n := sizes[i/3]
			t.expectBuffer("the data of Get", rooms[i], data(i%3, room)[:n])
		}
		w.unlockAll()
	},
}, {
	ID: "mpi/rget-accumulate/result-is-there", Cite: rule("mpi/11.3.5/2"), Setup: ranks(3),
	Title:   "When the request of an RgetAccumulate is complete, what was there before is in the result",
	Sends:   "all ranks add 1 to a number of rank 0, 20 times each, by RgetAccumulate and Wait",
	Expects: "results that rise, and a sum of 60",
	Defects: []string{"RequestsEarly", "FetchesNew", "AccumulatesRace"}, Run: func(t *T) {
		w := t.window(8)
		w.lock(mpi.Shared, 0)
		last := int64(-1)
		for range 20 {
			old := bytes.Repeat([]byte{0xff}, 8)
			t.wait(started(w.RgetAccumulate(word(1), old, 0, 0, mpi.Uint64, mpi.Sum))(t, "RgetAccumulate"))
			t.check(int64(number(old)) > last && number(old) < 60, "a number above the last and below 60", "%d after %d", int64(number(old)), last)
			last = int64(number(old))
		}
		w.unlock(0)
		t.barrier()
		t.onRank(0, func() { w.expectOwn("the sum", 0, word(60)) })
	},
}, {
	ID: "mpi/rput/in-lists", Cite: rule("mpi/11.3.5/3"),
	Title:   "Requests of windows can be waited for and tested with others",
	Sends:   "an Rput, an Rget, an Isend and an Irecv in one WaitAll",
	Expects: "all data",
	Defects: []string{"GetsNothing", "WaitAllMissesLast", "LargeDamaged"}, Run: func(t *T) {
		w := t.window(2000)
		w.initOwn(0, data(10+t.Rank(), 1000))
		w.lock(mpi.Shared, t.other())
		put := started(w.Rput(data(t.Rank(), 1000), t.other(), 1000))(t, "Rput")
		r := newGuardedBuf(1000)
		get := started(w.Rget(r.buf, t.other(), 0))(t, "Rget")
		p, s := t.irecv(largeSize, t.other(), 1), t.isend(data(20+t.Rank(), largeSize), t.other(), 1)
		t.waitAll(put, s, get, p.Request)
		t.expectBuffer("the data of Get", r, data(10+t.other(), 1000))
		t.expectBuffer("the message", p.recvBuf, data(20+t.other(), largeSize))
		w.unlock(t.other())
		w.expectOwnAfterBarrier("the data of Put", 1000, data(t.other(), 1000))
	},
}}
