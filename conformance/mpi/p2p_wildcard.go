package mpi

import "github.com/fabrictest/fabrictest/mpi"

var wildcardPrograms = programs{
	"mpi/wildcard/source-is-told": func(t *T) {
		if t.Rank() > 0 {
			t.send(data(t.Rank(), 20*t.Rank()), 0, 4)
			return
		}
		var seen [3]bool
		for range 2 {
			r := newGuardedBuf(100)
			st := result(t.Recv(r.buf, mpi.AnySource, 4))(t, "Recv")
			t.check((st.Source == 1 || st.Source == 2) && !seen[st.Source], "each of the sources 1 and 2 once", "%+v", st)
			seen[st.Source] = true
			t.expectStatus("the receive", st, st.Source, 4, 20*st.Source)
			t.expectBuffer("the message", r, data(st.Source, 20*st.Source))
		}
	},
	"mpi/wildcard/tag-is-told": func(t *T) {
		for i, tag := range []int{0, 5, 32767, mpi.TagMax} {
			t.onRank(0, func() { t.send(data(i, 10), 1, tag) })
			t.onRank(1, func() { t.expectStatus("the receive", t.expectRecv(data(i, 10), 0, mpi.AnyTag), 0, tag, 10) })
		}
	},
	"mpi/wildcard/both": func(t *T) {
		size := func(tag int) int { return 8 + tag*largeSize }
		if t.Rank() > 0 {
			a, b := t.isend(data(t.Rank(), size(0)), 0, 0), t.isend(data(t.Rank()+10, size(1)), 0, 1)
			t.waitAll(a, b)
			return
		}
		seen := make(map[Status]bool)
		for range 4 {
			r := newGuardedBuf(largeSize + 8)
			st := result(t.Recv(r.buf, mpi.AnySource, mpi.AnyTag))(t, "Recv")
			t.check(st.Source > 0 && st.Source < 3 && (st.Tag == 0 || st.Tag == 1) && !seen[st], "each of four messages once", "%+v after %v", st, seen)
			seen[st] = true
			t.expectBuffer("the message", r, data(st.Source+10*st.Tag, size(st.Tag)))
		}
	},
	"mpi/wildcard/tag-still-chooses": func(t *T) {
		if t.Rank() > 0 {
			t.awaitSignal(0)
			a := t.isend(data(20+t.Rank(), 8), 0, 2)
			b := t.isend(data(10+t.Rank(), 8), 0, 1)
			t.waitAll(a, b)
			return
		}
		ps := []*pending{t.irecv(8, mpi.AnySource, 1), t.irecv(8, mpi.AnySource, 2), t.irecv(8, mpi.AnySource, 1), t.irecv(8, mpi.AnySource, 2)}
		t.signal(1, 2)
		var from [4]int
		for i, p := range ps {
			tag := 1 + i%2
			st := t.wait(p)
			t.expectStatus("the receive", st, st.Source, tag, 8)
			t.expectBuffer("the message", p.recvBuf, data(10*tag+st.Source, 8))
			from[i] = st.Source
		}
		t.check(from[0]+from[2] == 3 && from[1]+from[3] == 3, "each tag from both ranks", "%v", from)
	},
	"mpi/wildcard/source-still-chooses": func(t *T) {
		side := t.dup()
		switch t.Rank() {
		case 1:
			r := t.isend(data(1, 8), 0, 11)
			side.signal(2)
			t.wait(r)
		case 2:
			side.awaitSignal(1)
			r := t.isend(data(2, 8), 0, 12)
			side.signal(0)
			t.wait(r)
		case 0:
			side.awaitSignal(2)
			t.idle()
			t.expectStatus("the receive", t.expectRecv(data(2, 8), 2, mpi.AnyTag), 2, 12, 8)
			t.expectStatus("the receive", t.expectRecv(data(1, 8), 1, mpi.AnyTag), 1, 11, 8)
		}
	},
	"mpi/wildcard/stay-in-their-communicator": func(t *T) {
		other := t.dup()
		t.onRank(0, func() {
			a := other.isend(data(1, 16), 1, 3)
			b := t.isend(data(2, 16), 1, 3)
			t.waitAll(a, b)
		})
		t.onRank(1, func() {
			t.idle()
			t.expectRecv(data(2, 16), mpi.AnySource, mpi.AnyTag)
			other.expectRecv(data(1, 16), mpi.AnySource, mpi.AnyTag)
		})
	},
	"mpi/wildcard/each-message-once": func(t *T) {
		const n = 10
		size := func(from, i int) int { return someSizes[(from+i)%len(someSizes)] }
		if t.Rank() > 0 {
			t.awaitSignal(0)
			rs := startAll(n, func(i int) Request { return t.isend(data(100*t.Rank()+i, size(t.Rank(), i)), 0, 8) })
			t.waitAll(rs...)
			return
		}
		ps := startAll(3*n, func(int) *pending { return t.irecv(70_000, mpi.AnySource, 8) })
		t.signal(1, 2, 3)
		var next [4]int
		for _, p := range ps {
			st := t.wait(p)
			t.check(st.Source > 0 && st.Source < 4, "a source", "%+v", st)
			i := next[st.Source]
			next[st.Source]++
			t.expectStatus("the receive", st, st.Source, 8, size(st.Source, i))
			t.expectBuffer("the message", p.recvBuf, data(100*st.Source+i, size(st.Source, i)))
		}
		t.check(next == [4]int{0, n, n, n}, "ten messages of each rank", "%v", next)
	},
	"mpi/wildcard/reply-to-whoever": func(t *T) {
		color := 0
		if t.Rank() == 3 {
			color = mpi.Undefined
		}
		c := result(t.Split(color, -t.Rank()))(t, "Split")
		if c == nil {
			return
		}
		s := t.inComm(c)
		if s.Rank() > 0 {
			for i := range 10 {
				s.send(word(uint64(100*s.Rank()+i)), 0, i)
				s.expectRecv(word(uint64(200*s.Rank()+2*i)), 0, i)
			}
			return
		}
		for range 20 {
			b := make([]byte, 8)
			st, err := s.Recv(b, mpi.AnySource, mpi.AnyTag)
			s.must("Recv", err)
			s.check(st.Source > 0 && st.Source < 3, "a rank of the communicator", "%+v", st)
			s.send(word(2*number(b)), st.Source, st.Tag)
		}
	},
	"mpi/wildcard/collectives-stay-hidden": func(t *T) {
		p := t.irecv(8, mpi.AnySource, mpi.AnyTag)
		b := data(t.Rank(), 8)
		for range 3 {
			t.barrier()
			t.must("Bcast", t.Bcast(b, 1))
			t.must("Allreduce", t.Allreduce(b, mpi.Uint64, mpi.Max))
		}
		_, found := result2(t.Iprobe(mpi.AnySource, mpi.AnyTag))(t, "Iprobe")
		t.check(!found, "nothing to be probed", "a message")
		t.expectPending("a receive of anything", p)
		t.barrier()
		next, last := (t.Rank()+1)%3, (t.Rank()+2)%3
		r := t.isend(data(50+t.Rank(), 8), next, 9)
		t.expectStatus("the receive", t.expectWait(p, data(50+last, 8)), last, 9, 8)
		t.wait(r)
	},
	"mpi/wildcard/oneself-too": func(t *T) {
		rs := []Request{t.isend(data(t.Rank(), 12), t.Rank(), 2), t.isend(data(t.Rank(), 12), t.other(), 2)}
		sum := 0
		for range 2 {
			r := newGuardedBuf(12)
			st := result(t.Recv(r.buf, mpi.AnySource, 2))(t, "Recv")
			t.check(st.Source == 0 || st.Source == 1, "a rank", "%+v", st)
			t.expectBuffer("the message", r, data(st.Source, 12))
			sum += st.Source
		}
		t.check(sum == 1, "one message of each", "sources that add up to %d", sum)
		t.waitAll(rs...)
	},
}
