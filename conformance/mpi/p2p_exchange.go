package mpi

import "github.com/fabrictest/fabrictest/mpi"

var exchangeCases = []Case{{
	ID: "mpi/exchange/ring", Cite: rule("mpi/3.10/1"), Setup: ranks(5),
	Title:   "Sendrecv around a ring does not wait for itself",
	Sends:   "every rank sends right and receives from the left, small and large",
	Expects: "the neighbour's data",
	Defects: []string{"SendrecvInTurn"}, Run: func(t *T) {
		n, me := t.Size(), t.Rank()
		left, right := (me+n-1)%n, (me+1)%n
		for i, size := range []int{0, 64, 5000, largeSize} {
			t.expectSendrecv(data(10*i+me, size), right, i, data(10*i+left, size), left, i)
		}
	},
}, {
	ID: "mpi/exchange/replace", Cite: rule("mpi/3.10/2"), Setup: ranks(4),
	Title:   "SendrecvReplace sends what was in the buffer, and leaves what came",
	Sends:   "a buffer goes once around the ring",
	Expects: "after each step the data of one rank further, in the end its own",
	Defects: []string{"ReplaceSendsLate", "SendrecvInTurn"}, Run: func(t *T) {
		n, me := t.Size(), t.Rank()
		for _, size := range []int{8, 5000, largeSize} {
			b := data(me, size)
			for step := 1; step <= n; step++ {
				st := result(t.SendrecvReplace(b, (me+1)%n, 1, (me+n-1)%n, 1))(t, "SendrecvReplace")
				t.expectStatus("SendrecvReplace", st, (me+n-1)%n, 1, size)
				t.expectEqual("the buffer", b, data((me+n-step%n)%n, size))
			}
		}
	},
}, {
	ID: "mpi/exchange/sendrecv-and-others", Cite: rule("mpi/3.10/3"), Setup: ranks(3),
	Title:   "The parts of Sendrecv match ordinary sends and receives",
	Sends:   "rank 0 sends to 1 and receives from 2 in one call, which use Recv and Send; rank 2 sends only when 1 has received",
	Expects: "the contents",
	Defects: []string{"SendrecvInTurn", "MiddleDamaged"}, Run: byRank(func(t *T) {
		t.expectSendrecv(data(1, 1000), 1, 4, data(2, 2000), 2, 5)
		// and in the reverse order: the receive must complete first
		t.expectSendrecv(data(3, 1000), 1, 4, data(4, 2000), 2, 5)
	}, func(t *T) {
		t.expectRecv(data(1, 1000), 0, 4)
		t.signal(2)
		t.awaitSignal(2)
		t.expectRecv(data(3, 1000), 0, 4)
	}, func(t *T) {
		t.awaitSignal(1)
		t.send(data(2, 2000), 0, 5)
		t.must("Ssend", t.Ssend(data(4, 2000), 0, 5))
		t.signal(1)
	}),
}, {
	ID: "mpi/exchange/halo", Cite: rule("mpi/3.7.4/2", "mpi/3.5/3"), Setup: ranks(6),
	Title:   "Ranks on a grid exchange borders with four neighbours, all at once",
	Sends:   "a torus of 2 by 3: receives and sends to the neighbours for ten steps, with other contents and sizes each",
	Expects: "the borders of each step",
	Defects: []string{"IsendWaits", "LastByteLost"}, Run: func(t *T) {
		const wide, high = 3, 2
		x, y := t.Rank()%wide, t.Rank()/wide
		at := func(x, y int) int { return (y+high)%high*wide + (x+wide)%wide }
		to := []int{at(x+1, y), at(x-1, y), at(x, y+1), at(x, y-1)}
		from := []int{at(x-1, y), at(x+1, y), at(x, y-1), at(x, y+1)}
		for step := range 10 {
			size := []int{64, 3000, 20_000}[step%3]
			rs := startAll(4, func(side int) Request {
				return t.isend(data(1000*step+10*t.Rank()+side, size), to[side], side)
			})
			ps := startAll(4, func(side int) *pending { return t.irecv(size, from[side], side) })
			for side, p := range ps {
				t.expectWait(p, data(1000*step+10*from[side]+side, size))
			}
			t.waitAll(rs...)
		}
	},
}, {
	ID: "mpi/exchange/master-and-workers", Cite: rule("mpi/3.5/3", "mpi/3.2.4/2"), Setup: ranks(5),
	Title:   "A master that hands out work to whoever is idle gets every result once",
	Sends:   "60 pieces of work to four workers by AnySource and the status, an end by tag",
	Expects: "the result of every piece once",
	Defects: []string{"WildSourceUntold", "WildTagUntold"}, Run: func(t *T) {
		const pieces, stop = 60, 9
		if t.Rank() > 0 {
			t.send(nil, 0, 0)
			for {
				b := make([]byte, 8)
				st := result(t.Recv(b, 0, mpi.AnyTag))(t, "Recv")
				if st.Tag == stop {
					t.check(st.Count == 0, "an empty message as the end", "%+v", st)
					return
				}
				t.w.Compute(1000)
				t.send(words(number(b), number(b)*number(b)+uint64(t.Rank())), 0, 1)
			}
		}
		var seen [pieces]bool
		given, running := 0, 4
		for running > 0 {
			b := make([]byte, 16)
			st := result(t.Recv(b, mpi.AnySource, mpi.AnyTag))(t, "Recv")
			if st.Tag == 1 {
				x, y := number(b), number(b[8:])
				t.check(st.Count == 16 && x < pieces && y == x*x+uint64(st.Source) && !seen[x], "the result of a piece of work, once, by the worker that the status names", "%d, %d of %+v", x, y, st)
				seen[x] = true
			}
			if given < pieces {
				t.send(word(uint64(given)), st.Source, 1)
				given++
				continue
			}
			t.send(nil, st.Source, stop)
			running--
		}
		for x, is := range seen {
			t.check(is, "a result of every piece", "none of %d", x)
		}
	},
}, {
	ID: "mpi/exchange/buffer-reused", Cite: rule("mpi/3.7.3/1"),
	Title:   "One pair of buffers carries message after message",
	Sends:   "200 rounds of ping-pong from the same buffers, sizes by turns, each filled and cleared at once",
	Expects: "the contents of each round",
	Defects: []string{"LateCopy", "MiddleDamaged"}, Run: func(t *T) {
		sizes := []int{8, 1024, 10_000, 80_000}
		out, in := make([]byte, 80_000), newGuardedBuf(80_000)
		for i := range 200 {
			n := sizes[i%4]
			send := func() {
				copy(out, data(2*i+t.Rank(), n))
				t.send(out[:n], t.other(), 1)
				clear(out[:n])
			}
			recv := func() {
				st := result(t.Recv(in.buf, t.other(), 1))(t, "Recv")
				t.expectStatus("Recv", st, t.other(), 1, n)
				t.expectEqual("the message", in.buf[:n], data(2*i+t.other(), n))
			}
			if t.Rank() == 0 {
				send()
				recv()
			} else {
				recv()
				send()
			}
		}
	},
}, {
	ID: "mpi/exchange/memory-forgotten", Cite: rule("mpi/3.7.3/1"),
	Title:   "Memory whose registration was invalidated can be used for other messages",
	Sends:   "large messages from and to parts of one buffer, with Invalidate of the buffer in between",
	Expects: "the contents, and a buffer that Invalidate has not changed",
	Defects: []string{"InvalidateClears", "LargeDamaged"}, Run: func(t *T) {
		mem := make([]byte, 2*largeSize)
		for i := range 6 {
			at := i * 1000
			copy(mem[at:], data(2*i+t.Rank(), largeSize))
			t.expectSendrecv(mem[at:at+largeSize], t.other(), 1, data(2*i+t.other(), largeSize), t.other(), 1)
			t.must("Invalidate", t.w.Invalidate(mem))
			t.expectEqual("memory that was invalidated", mem[at:at+largeSize], data(2*i+t.Rank(), largeSize))
			clear(mem)
		}
	},
}}
