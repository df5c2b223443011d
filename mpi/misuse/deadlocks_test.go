package misuse_test

import (
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/misuse"
)

// big is longer than any eager message.
const big = 1 << 20

// word returns a buffer of 8 bytes.
func word() []byte { return make([]byte, 8) }

// deadlocks are programs whose ranks wait for ever.
var deadlocks = []program{
	{"both receive first", 2, misuse.HeadToHead, "0A 1A", func(w *mpi.World, wrong bool) {
		peer := 1 - w.Rank()
		if !wrong && w.Rank() == 0 {
			ok(w.Send(word(), peer, 1))
			get(w.Recv(word(), peer, 1))
			return
		}
		get(w.Recv(word(), peer, 1)) // A
		ok(w.Send(word(), peer, 1))
	}},
	{"ring of receives", 4, misuse.RingReceives, "0A 1A 2A 3A", func(w *mpi.World, wrong bool) {
		next, previous := (w.Rank()+1)%4, (w.Rank()+3)%4
		if !wrong && w.Rank() == 2 {
			ok(w.Send(word(), next, 1))
			get(w.Recv(word(), previous, 1))
			return
		}
		get(w.Recv(word(), previous, 1)) // A
		ok(w.Send(word(), next, 1))
	}},
	{"probes before sends", 2, misuse.HeadToHead, "0A 1A", func(w *mpi.World, wrong bool) {
		peer := 1 - w.Rank()
		if !wrong {
			get(w.Isend(word(), peer, 1)).Free()
		}
		get(w.Probe(peer, 1)) // A
		get(w.Recv(word(), peer, 1))
		if wrong {
			ok(w.Send(word(), peer, 1))
		}
	}},
	{"matched probes before sends", 2, misuse.HeadToHead, "0A 1A", func(w *mpi.World, wrong bool) {
		peer := 1 - w.Rank()
		if !wrong {
			get(w.Isend(word(), peer, 1)).Free()
		}
		m, _, err := w.Mprobe(peer, mpi.AnyTag) // A
		ok(err)
		get(m.Recv(word()))
		if wrong {
			ok(w.Send(word(), peer, 1))
		}
	}},
	{"wait for all before the sends", 2, misuse.HeadToHead, "0A 0B 1A 1B", func(w *mpi.World, wrong bool) {
		peer := 1 - w.Rank()
		r := get(w.Irecv(word(), peer, 1)) // A
		s := []*mpi.Request{r}
		if !wrong {
			s = append(s, get(w.Isend(word(), peer, 1)))
		}
		get(mpi.WaitAll(s)) // B
		if wrong {
			ok(w.Send(word(), peer, 1))
		}
	}},
	{"wait for any of two receives", 2, misuse.HeadToHead, "0A 0B 0C 1A 1B 1C", func(w *mpi.World, wrong bool) {
		peer := 1 - w.Rank()
		a := get(w.Irecv(word(), peer, 1)) // A
		b := get(w.Irecv(word(), peer, 2)) // B
		if !wrong {
			ok(w.Send(word(), peer, 2))
		}
		_, _, err := mpi.WaitAny([]*mpi.Request{a, b}) // C
		ok(err)
		if wrong {
			ok(w.Send(word(), peer, 2))
		}
		ok(w.Send(word(), peer, 1))
		get(mpi.WaitAll([]*mpi.Request{a, b}))
	}},
	{"receives from any source in a knot", 3, misuse.RingReceives, "0A 1A 2A", func(w *mpi.World, wrong bool) {
		if !wrong && w.Rank() == 0 {
			ok(w.Send(word(), 1, 1))
		}
		get(w.Recv(word(), mpi.AnySource, 1)) // A
		if wrong || w.Rank() > 0 {
			ok(w.Send(word(), (w.Rank()+1)%3, 1))
		}
	}},
	{"synchronous sends head to head", 2, misuse.SendsHeadToHead, "0A 1A", func(w *mpi.World, wrong bool) {
		peer := 1 - w.Rank()
		if !wrong && w.Rank() == 1 {
			get(w.Recv(word(), peer, 1))
			ok(w.Ssend(word(), peer, 1))
			return
		}
		ok(w.Ssend(word(), peer, 1)) // A
		get(w.Recv(word(), peer, 1))
	}},
	{"long sends head to head", 2, misuse.SendsHeadToHead, "0A 1A", func(w *mpi.World, wrong bool) {
		peer := 1 - w.Rank()
		if !wrong {
			get(w.Sendrecv(make([]byte, big), peer, 1, make([]byte, big), peer, 1))
			return
		}
		ok(w.Send(make([]byte, big), peer, 1)) // A
		get(w.Recv(make([]byte, big), peer, 1))
	}},
	{"ring of long sends", 3, misuse.RingSends, "0A 1A 2A", func(w *mpi.World, wrong bool) {
		next, previous := (w.Rank()+1)%3, (w.Rank()+2)%3
		if !wrong {
			r := get(w.Irecv(make([]byte, big), previous, 1))
			ok(w.Send(make([]byte, big), next, 1))
			get(r.Wait())
			return
		}
		ok(w.Send(make([]byte, big), next, 1)) // A
		get(w.Recv(make([]byte, big), previous, 1))
	}},
	{"receive from oneself", 2, misuse.ToItself, "0A", func(w *mpi.World, wrong bool) {
		if w.Rank() == 1 {
			return
		}
		if wrong {
			get(w.Recv(word(), 0, 1)) // A
			ok(w.Send(word(), 0, 1))
			return
		}
		r := get(w.Irecv(word(), 0, 1))
		ok(w.Send(word(), 0, 1))
		get(r.Wait())
	}},
	{"synchronous send to oneself", 1, misuse.ToItself, "0A", func(w *mpi.World, wrong bool) {
		if wrong {
			ok(w.Ssend(word(), 0, 1)) // A
			get(w.Recv(word(), 0, 1))
			return
		}
		get(w.Sendrecv(word(), 0, 1, word(), 0, 1))
	}},
	{"a send and two receives in a cycle", 3, misuse.SendReceive, "0A 1B 2C", func(w *mpi.World, wrong bool) {
		switch w.Rank() {
		case 0:
			if !wrong {
				ok(w.Send(word(), 2, 3))
			}
			get(w.Recv(word(), 1, 1)) // A
			if wrong {
				ok(w.Send(word(), 2, 3))
			}
		case 1:
			ok(w.Ssend(word(), 2, 2)) // B
			ok(w.Send(word(), 0, 1))
		case 2:
			get(w.Recv(word(), 0, 3)) // C
			get(w.Recv(word(), 1, 2))
		}
	}},
	{"send is missing", 2, misuse.MissingPartner, "0A", func(w *mpi.World, wrong bool) {
		if w.Rank() == 0 {
			get(w.Recv(word(), 1, 1)) // A
		} else if !wrong {
			ok(w.Send(word(), 0, 1))
		}
	}},
	{"receive is missing", 2, misuse.MissingPartner, "0A", func(w *mpi.World, wrong bool) {
		if w.Rank() == 0 {
			ok(w.Ssend(word(), 1, 1)) // A
		} else if !wrong {
			get(w.Recv(word(), 0, 1))
		}
	}},
	{"receive of a long message is missing", 2, misuse.MissingPartner, "0A 0B", func(w *mpi.World, wrong bool) {
		if w.Rank() == 0 {
			s := get(w.Isend(make([]byte, big), 1, 1)) // A
			get(s.Wait())                              // B
		} else if !wrong {
			get(w.Recv(make([]byte, big), 0, 1))
		}
	}},
	{"message is probed for and never sent", 3, misuse.MissingPartner, "2A", func(w *mpi.World, wrong bool) {
		switch {
		case w.Rank() == 2:
			get(w.Probe(mpi.AnySource, 1)) // A
			get(w.Recv(word(), mpi.AnySource, 1))
		case w.Rank() == 1 && !wrong:
			ok(w.Send(word(), 2, 1))
		}
	}},
	{"last of many messages is missing", 2, misuse.MissingPartner, "1A", func(w *mpi.World, wrong bool) {
		n := 10
		if w.Rank() == 0 {
			if wrong {
				n--
			}
			for range n {
				ok(w.Send(word(), 1, 1))
			}
			return
		}
		for range n {
			get(w.Recv(word(), 0, 1)) // A
		}
	}},
	{"persistent receive is not started", 2, misuse.MissingPartner, "0A", func(w *mpi.World, wrong bool) {
		if w.Rank() == 0 {
			ok(w.Ssend(word(), 1, 1)) // A
			return
		}
		r := get(w.RecvInit(word(), 0, 1))
		if !wrong {
			ok(r.Start())
		}
		get(r.Wait())
		ok(r.Free())
	}},
	{"tags differ", 2, misuse.WrongTag, "0A 1B", func(w *mpi.World, wrong bool) {
		tag := 1
		if wrong {
			tag = 2
		}
		if w.Rank() == 0 {
			get(w.Recv(word(), 1, 1)) // A
		} else {
			ok(w.Send(word(), 0, tag)) // B
		}
	}},
	{"tags of synchronous sends differ", 2, misuse.WrongTag, "0A 1B", func(w *mpi.World, wrong bool) {
		tag := 1
		if wrong {
			tag = 2
		}
		if w.Rank() == 0 {
			ok(w.Ssend(word(), 1, 1)) // A
		} else {
			get(w.Recv(word(), 0, tag)) // B
		}
	}},
	{"tags of an exchange differ", 2, misuse.WrongTag, "0A 1A", func(w *mpi.World, wrong bool) {
		peer, tag := 1-w.Rank(), 5
		if wrong {
			tag += w.Rank()
		}
		get(w.Sendrecv(word(), peer, tag, word(), peer, tag)) // A
	}},
	{"tag of a probe differs", 2, misuse.WrongTag, "0A 1B", func(w *mpi.World, wrong bool) {
		tag := 1
		if wrong {
			tag = 2
		}
		if w.Rank() == 0 {
			get(w.Probe(1, tag)) // A
			get(w.Recv(word(), 1, 1))
		} else {
			ok(w.Send(word(), 0, 1)) // B
		}
	}},
	{"communicators differ", 2, misuse.WrongComm, "0A 1B", func(w *mpi.World, wrong bool) {
		dup := get(w.Dup())
		c := dup
		if wrong {
			c = w.Comm
		}
		if w.Rank() == 0 {
			get(dup.Recv(word(), 1, 1)) // A
		} else {
			ok(c.Send(word(), 0, 1)) // B
		}
		ok(dup.Free())
	}},
	{"receive names another source", 3, misuse.WrongRank, "0A 1B", func(w *mpi.World, wrong bool) {
		source := 1
		if wrong {
			source = 2
		}
		switch w.Rank() {
		case 0:
			get(w.Recv(word(), source, 1)) // A
		case 1:
			ok(w.Send(word(), 0, 1)) // B
		}
	}},
	{"send names another destination", 3, misuse.WrongRank, "0A 1B", func(w *mpi.World, wrong bool) {
		to := 0
		if wrong {
			to = 2
		}
		switch w.Rank() {
		case 0:
			get(w.Recv(word(), 1, 1)) // A
		case 1:
			ok(w.Send(word(), to, 1)) // B
		}
	}},
	{"receive from any source takes the message", 3, misuse.WildcardTook, "0A 0B 1C", func(w *mpi.World, wrong bool) {
		switch w.Rank() {
		case 0:
			if wrong {
				get(w.Recv(word(), mpi.AnySource, 1)) // A
				ok(w.Send(nil, 2, 2))
				get(w.Recv(word(), 1, 1)) // B
				return
			}
			get(w.Recv(word(), 1, 1))
			ok(w.Send(nil, 2, 2))
			get(w.Recv(word(), mpi.AnySource, 1))
		case 1:
			ok(w.Send(word(), 0, 1)) // C
		case 2:
			get(w.Recv(nil, 0, 2))
			ok(w.Send(word(), 0, 1))
		}
	}},
	{"receive with any tag takes the message", 2, misuse.WildcardTook, "0A 0B 1C", func(w *mpi.World, wrong bool) {
		if w.Rank() == 1 {
			ok(w.Send(word(), 0, 7)) // C
			ok(w.Send(word(), 0, 8))
			return
		}
		if wrong {
			get(w.Recv(word(), 1, mpi.AnyTag)) // A
			get(w.Recv(word(), 1, 7))          // B
			return
		}
		get(w.Recv(word(), 1, 7))
		get(w.Recv(word(), 1, mpi.AnyTag))
	}},
	{"receive before a barrier, send after it", 2, misuse.CrossedCalls, "0A 1B", func(w *mpi.World, wrong bool) {
		if w.Rank() == 0 {
			get(w.Recv(word(), 1, 1)) // A
			ok(w.Barrier())
			return
		}
		if wrong {
			ok(w.Barrier()) // B
		}
		ok(w.Send(word(), 0, 1))
		if !wrong {
			ok(w.Barrier())
		}
	}},
	{"synchronous send and allreduce", 3, misuse.CrossedCalls, "0A 1B", func(w *mpi.World, wrong bool) {
		if w.Rank() == 0 {
			ok(w.Ssend(word(), 1, 1)) // A
		}
		if w.Rank() == 1 && !wrong {
			get(w.Recv(word(), 0, 1))
		}
		ok(w.Allreduce(word(), word(), mpi.Int64, mpi.Sum)) // B
		if w.Rank() == 1 && wrong {
			get(w.Recv(word(), 0, 1))
		}
	}},
	{"nonblocking barrier is waited for before a send", 2, misuse.CrossedCalls, "0A 1B 1C", func(w *mpi.World, wrong bool) {
		if w.Rank() == 0 {
			get(w.Recv(word(), 1, 1)) // A
			ok(w.Barrier())
			return
		}
		if !wrong {
			ok(w.Send(word(), 0, 1))
			ok(w.Barrier())
			return
		}
		b := get(w.Ibarrier()) // B
		get(b.Wait())          // C
		ok(w.Send(word(), 0, 1))
	}},
	{"barriers of two communicators", 2, misuse.CrossedComms, "0A 1B", func(w *mpi.World, wrong bool) {
		a, b := get(w.Dup()), get(w.Dup())
		if wrong && w.Rank() == 1 {
			ok(b.Barrier()) // B
			ok(a.Barrier())
		} else {
			ok(a.Barrier()) // A
			ok(b.Barrier())
		}
		ok(a.Free())
		ok(b.Free())
	}},
	{"rows and columns in opposite order", 4, misuse.CrossedComms, "0A 1A 2B 3B", func(w *mpi.World, wrong bool) {
		row, column := get(w.Split(w.Rank()/2, 0)), get(w.Split(w.Rank()%2, 0))
		row0, sum := w.Rank() < 2 || !wrong, word()
		if row0 {
			ok(column.Allreduce(word(), sum, mpi.Int64, mpi.Sum)) // A
			ok(row.Barrier())
		} else {
			ok(row.Barrier())
			ok(w.Barrier()) // B
			ok(column.Allreduce(word(), sum, mpi.Int64, mpi.Sum))
		}
		if row0 {
			ok(w.Barrier())
		}
		ok(row.Free())
		ok(column.Free())
	}},
	{"test in a loop without a send", 2, misuse.Livelock, "0A 0B", func(w *mpi.World, wrong bool) {
		if w.Rank() == 1 {
			if !wrong {
				ok(w.Send(word(), 0, 1))
			}
			return
		}
		r := get(w.Irecv(word(), 1, 1)) // A
		for done := false; !done; {
			_, done, _ = r.Test() // B
		}
	}},
	{"both probe in a loop", 2, misuse.Livelock, "0A 1A", func(w *mpi.World, wrong bool) {
		peer := 1 - w.Rank()
		if !wrong {
			get(w.Isend(word(), peer, 1)).Free()
		}
		for found := false; !found; {
			_, found, _ = w.Iprobe(peer, 1) // A
		}
		get(w.Recv(word(), peer, 1))
		if wrong {
			ok(w.Send(word(), peer, 1))
		}
	}},
}

// buffering are programs that end only if sends or collectives do not wait.
var buffering = []program{
	{"short sends head to head", 2, misuse.Unsafe, "0A 1A", func(w *mpi.World, wrong bool) {
		peer := 1 - w.Rank()
		if !wrong {
			r := get(w.Irecv(word(), peer, 1))
			ok(w.Send(word(), peer, 1))
			get(r.Wait())
			return
		}
		ok(w.Send(word(), peer, 1)) // A
		get(w.Recv(word(), peer, 1))
	}},
	{"ring of short sends", 4, misuse.Unsafe, "0A 1A 2A 3A", func(w *mpi.World, wrong bool) {
		next, previous := (w.Rank()+1)%4, (w.Rank()+3)%4
		if !wrong && w.Rank() == 0 {
			get(w.Recv(word(), previous, 1))
			ok(w.Send(word(), next, 1))
			return
		}
		ok(w.Send(word(), next, 1)) // A
		get(w.Recv(word(), previous, 1))
	}},
	{"short send to oneself", 1, misuse.Unsafe, "0A", func(w *mpi.World, wrong bool) {
		if !wrong {
			get(w.Sendrecv(word(), 0, 1, word(), 0, 1))
			return
		}
		ok(w.Send(word(), 0, 1)) // A
		get(w.Recv(word(), 0, 1))
	}},
	{"waits for sends before the receives", 2, misuse.Unsafe, "0A 0B 1A 1B", func(w *mpi.World, wrong bool) {
		peer := 1 - w.Rank()
		s := get(w.Isend(word(), peer, 1)) // A
		if wrong {
			get(s.Wait()) // B
		}
		get(w.Recv(word(), peer, 1))
		get(s.Wait())
	}},
	{"persistent sends before the receives", 2, misuse.Unsafe, "0A 0B 1A 1B", func(w *mpi.World, wrong bool) {
		peer := 1 - w.Rank()
		s := get(w.SendInit(word(), peer, 1))
		ok(s.Start()) // A
		if wrong {
			get(s.Wait()) // B
		}
		get(w.Recv(word(), peer, 1))
		get(s.Wait())
		ok(s.Free())
	}},
	{"messages in the order of no receive", 2, misuse.Unsafe, "0A 1B", func(w *mpi.World, wrong bool) {
		if w.Rank() == 0 {
			ok(w.Send(word(), 1, 1)) // A
			ok(w.Send(word(), 1, 2))
			return
		}
		if wrong {
			get(w.Recv(word(), 0, 2)) // B
			get(w.Recv(word(), 0, 1))
			return
		}
		get(w.Recv(word(), 0, 1))
		get(w.Recv(word(), 0, 2))
	}},
	{"send after a broadcast of the receiver", 2, misuse.Unsafe, "0A 1B", func(w *mpi.World, wrong bool) {
		if w.Rank() == 0 {
			ok(w.Bcast(word(), 0)) // A
			ok(w.Send(word(), 1, 1))
			return
		}
		if wrong {
			get(w.Recv(word(), 0, 1)) // B
			ok(w.Bcast(word(), 0))
			return
		}
		ok(w.Bcast(word(), 0))
		get(w.Recv(word(), 0, 1))
	}},
}
