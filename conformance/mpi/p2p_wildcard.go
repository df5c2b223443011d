package mpi

import "github.com/fabrictest/fabrictest/mpi"

var wildcardCases = []Case{{
	ID: "mpi/wildcard/source-is-told", Cite: rule("mpi/3.2.5/1", "mpi/3.2.4/2"), Setup: ranks(3),
	Title:   "The status of a receive from anybody says who sent the message",
	Sends:   "two ranks send; a third receives from anybody, twice",
	Expects: "source, tag and count of the message whose content it is",
	Defects: []string{"WildSourceUntold"}, Run: func(t *T) {
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
}, {
	ID: "mpi/wildcard/tag-is-told", Cite: rule("mpi/3.2.5/1", "mpi/3.2.4/2"),
	Title:   "The status of a receive of any tag says which one it was",
	Sends:   "messages with tags 0, 5, 32767 and the largest",
	Expects: "each tag in the status",
	Defects: []string{"WildTagUntold"}, Run: func(t *T) {
		for i, tag := range []int{0, 5, 32767, mpi.TagMax} {
			t.onRank(0, func() { t.send(data(i, 10), 1, tag) })
			t.onRank(1, func() { t.expectStatus("the receive", t.expectRecv(data(i, 10), 0, mpi.AnyTag), 0, tag, 10) })
		}
	},
}, {
	ID: "mpi/wildcard/both", Cite: rule("mpi/3.2.4/2"), Setup: ranks(3),
	Title:   "A receive with both wildcards takes any message of its communicator, large ones too",
	Sends:   "two ranks send a small and a large message each",
	Expects: "four messages, whole, as their statuses say",
	Defects: []string{"WildSourceUntold", "WildTagUntold", "LargeDamaged"}, Run: func(t *T) {
		size := func(tag int) int { return 8 + tag*largeSize }
		if t.Rank() > 0 {
			t.waitAll(t.isend(data(t.Rank(), size(0)), 0, 0), t.isend(data(t.Rank()+10, size(1)), 0, 1))
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
}, {
	ID: "mpi/wildcard/tag-still-chooses", Cite: rule("mpi/3.2.4/1", "mpi/3.2.4/2"), Setup: ranks(3),
	Title:   "A receive from anybody takes only messages with its tag",
	Sends:   "receives from anybody of two tags, posted; both ranks send both tags",
	Expects: "each receive gets its tag",
	Defects: []string{"TagIgnored"}, Run: func(t *T) {
		if t.Rank() > 0 {
			t.awaitSignal(0)
			t.waitAll(t.isend(data(20+t.Rank(), 8), 0, 2), t.isend(data(10+t.Rank(), 8), 0, 1))
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
}, {
	ID: "mpi/wildcard/source-still-chooses", Cite: rule("mpi/3.2.4/1", "mpi/3.2.4/2"), Setup: ranks(3),
	Title:   "A receive of any tag takes only messages from its source",
	Sends:   "rank 1 sends, and later rank 2; a receive of any tag from rank 2 first",
	Expects: "the message of rank 2",
	Defects: []string{"SourceIgnored"}, Run: func(t *T) {
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
}, {
	ID: "mpi/wildcard/stay-in-their-communicator", Cite: rule("mpi/3.2.3/1", "mpi/6.2/1"),
	Title:   "Wildcards do not reach into other communicators",
	Sends:   "a message in a duplicate, then one in the original; receives of anything in the original first",
	Expects: "each in its own",
	Defects: []string{"DupSharesContext"}, Run: func(t *T) {
		other := t.dup()
		if t.Rank() == 0 {
			t.waitAll(other.isend(data(1, 16), 1, 3), t.isend(data(2, 16), 1, 3))
		} else {
			t.idle()
			t.expectRecv(data(2, 16), mpi.AnySource, mpi.AnyTag)
			other.expectRecv(data(1, 16), mpi.AnySource, mpi.AnyTag)
		}
	},
}, {
	ID: "mpi/wildcard/each-message-once", Cite: rule("mpi/3.2.4/2"), Setup: ranks(4),
	Title:   "As many receives from anybody as there are messages get all of them, each once",
	Sends:   "30 receives posted; three ranks send 10 each, of all sizes",
	Expects: "every message once, whole",
	Defects: []string{"WildSourceUntold", "Overtakes"}, Run: func(t *T) {
		const n = 10
		size := func(from, i int) int { return someSizes[(from+i)%len(someSizes)] }
		if t.Rank() > 0 {
			t.awaitSignal(0)
			t.waitAll(startAll(n, func(i int) Request { return t.isend(data(100*t.Rank()+i, size(t.Rank(), i)), 0, 8) })...)
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
}, {
	ID: "mpi/wildcard/reply-to-whoever", Cite: rule("mpi/3.2.5/1"), Setup: ranks(4),
	Title:   "The source of the status is a rank that can be answered",
	Sends:   "in a communicator of three ranks in another order, a server answers whoever asks, by the status alone",
	Expects: "that each gets its own answers",
	Defects: []string{"WildSourceUntold", "SourceIsOfWorld"}, Run: func(t *T) {
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
			st := result(s.Recv(b, mpi.AnySource, mpi.AnyTag))(s, "Recv")
			s.check(st.Source > 0 && st.Source < 3, "a rank of the communicator", "%+v", st)
			s.send(word(2*number(b)), st.Source, st.Tag)
		}
	},
}, {
	ID: "mpi/wildcard/collectives-stay-hidden", Cite: rule("mpi/5.1/1"), Setup: ranks(3),
	Title:   "A receive of anything sees nothing of collective operations",
	Sends:   "with receives of anything posted on all ranks, barriers, a broadcast and a reduction; then one message to each",
	Expects: "the receives get the message",
	Defects: []string{"CollectivesShow"}, Run: func(t *T) {
		p := t.irecv(8, mpi.AnySource, mpi.AnyTag)
		b := data(t.Rank(), 8)
		for range 3 {
			t.barrier()
			t.must("Bcast", t.Bcast(b, 1))
			t.must("Allreduce", t.Allreduce(mpi.InPlace, b, mpi.Uint64, mpi.Max))
		}
		t.expectNoMessage(mpi.AnySource, mpi.AnyTag)
		t.expectPending("a receive of anything", p)
		t.barrier()
		next, last := (t.Rank()+1)%3, (t.Rank()+2)%3
		r := t.isend(data(50+t.Rank(), 8), next, 9)
		t.expectStatus("the receive", t.expectWait(p, data(50+last, 8)), last, 9, 8)
		t.wait(r)
	},
}, {
	ID: "mpi/wildcard/oneself-too", Cite: rule("mpi/3.2.4/2"),
	Title:   "A receive from anybody gets a rank's messages to itself as well",
	Sends:   "a message of a rank to itself, and one of the other",
	Expects: "both, with their sources",
	Defects: []string{"SelfLost", "WildSourceUntold"}, Run: func(t *T) {
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
}}
