package mpi

import "github.com/fabrictest/fabrictest/mpi"

var windowPrograms = programs{
	"mpi/win/over-a-buffer": func(t *T) {
		r := newGuardedBuf(100)
		win := result(t.WinCreate(r.buf))(t, "WinCreate")
		w := &W{win, t}
		w.fence(0)
		w.put(data(t.Rank(), 60), t.other(), 0)
		w.fence(0)
		t.expectBuffer("the buffer", r, data(t.other(), 60))
		r.buf[0] ^= 0xff
		t.check(w.Memory()[0] == r.buf[0] && len(w.Memory()) == 100, "Memory to be the buffer", "other memory")
		w.free()
	},
	"mpi/win/sizes-differ": func(t *T) {
		sizes := []int{0, 64, 128, 5000}
		w := t.window(sizes[t.Rank()])
		for k, n := range sizes {
			t.check(w.Size(k) == n, "the size of each rank's window", "%d of rank %d, not %d", w.Size(k), k, n)
		}
		w.lockAll()
		for k, n := range sizes {
			if n > 0 && t.Rank() == (k+1)%4 {
				w.put([]byte{byte(10 + k)}, k, n-1)
			}
			t.mustFail("Put behind the end", w.Put([]byte{9}, k, n), mpi.ErrRMARange)
		}
		w.unlockAll()
		t.barrier()
		if n := sizes[t.Rank()]; n > 0 {
			w.expectOwn("the last byte", n-1, []byte{byte(10 + t.Rank())})
		}
	},
	"mpi/win/apart": func(t *T) {
		a, b := t.window(64), t.window(64)
		a.fence(0)
		b.fence(0)
		a.put(data(1+t.Rank(), 32), t.other(), 8)
		b.put(data(11+t.Rank(), 32), t.other(), 8)
		a.fence(0)
		b.fence(0)
		t.expectEqual("the first window", a.Memory()[8:40], data(1+t.other(), 32))
		t.expectEqual("the second window", b.Memory()[8:40], data(11+t.other(), 32))
		a.free()
		b.free()
	},
	"mpi/win/ranks-of-its-communicator": func(t *T) {
		c := t.split(0, -t.Rank())
		w := c.window(32)
		w.fence(0)
		w.put(data(t.Rank(), 16), (c.Rank()+1)%4, 0)
		w.fence(0)
		from := (c.Rank() + 3) % 4
		t.expectEqual("the window", w.Memory()[:16], data(3-from, 16))
		t.expectPlace(3-c.Rank(), 4)
		w.free()
	},
	"mpi/win/freed": func(t *T) {
		a, b := t.window(16), t.window(16)
		a.free()
		t.mustFail("Fence", a.Fence(0), mpi.ErrWin)
		t.mustFail("Lock", a.Lock(mpi.Shared, 0, 0), mpi.ErrWin)
		t.mustFail("Put", a.Put([]byte{1}, 0, 0), mpi.ErrWin)
		b.fence(0)
		b.put(data(t.Rank(), 16), 1-t.Rank(), 0)
		b.fence(0)
		t.expectEqual("the other window", b.Memory(), data(1-t.Rank(), 16))
		b.free()
		t.expectUsable()
	},
	"mpi/win/nobody": func(t *T) {
		w := t.window(16)
		all := func() {
			b := data(3, 16)
			t.must("Put", w.Put(b, mpi.ProcNull, 0))
			t.must("Get", w.Get(b, mpi.ProcNull, 0))
			t.must("Accumulate", w.Accumulate(b, mpi.ProcNull, 0, mpi.Uint64, mpi.Sum))
			t.expectEqual("the buffer of a Get from nobody", b, data(3, 16))
		}
		w.fence(0)
		all()
		w.fence(mpi.NoSucceed)
		w.lockAll()
		all()
		w.unlockAll()
		w.expectOwn("the window", 0, make([]byte, 16))
	},
	"mpi/win/beside-messages": func(t *T) {
		n, me := t.Size(), t.Rank()
		next, last := (me+1)%n, (me+n-1)%n
		w := t.window(n * 50_000)
		w.fence(0)
		p := t.irecv(largeSize, last, 1)
		for k := range n {
			w.put(data(10*me+k, 50_000), k, me*50_000)
		}
		r := t.isend(data(me, largeSize), next, 1)
		t.expectWait(p, data(last, largeSize))
		t.wait(r)
		w.fence(0)
		for k := range n {
			t.expectEqual("the window", w.Memory()[k*50_000:(k+1)*50_000], data(10*k+me, 50_000))
		}
	},
}
