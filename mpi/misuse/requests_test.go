package misuse_test

import (
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/misuse"
)

// requests are programs that use requests in the wrong order.
var requests = []program{
	{"send is never waited for", 2, misuse.RequestLost, "0A", func(w *mpi.World, wrong bool) {
		if w.Rank() == 1 {
			get(w.Recv(word(), 0, 1))
			return
		}
		s := get(w.Isend(word(), 1, 1)) // A
		if !wrong {
			get(s.Wait())
		}
	}},
	{"receive is never waited for", 2, misuse.RequestLost, "1A", func(w *mpi.World, wrong bool) {
		if w.Rank() == 0 {
			ok(w.Send(word(), 1, 1))
			return
		}
		r := get(w.Irecv(word(), 0, 1)) // A
		if !wrong {
			get(r.Wait())
		}
	}},
	{"one of several requests is not waited for", 2, misuse.RequestLost, "1B", func(w *mpi.World, wrong bool) {
		if w.Rank() == 0 {
			ok(w.Send(word(), 1, 1))
			ok(w.Send(word(), 1, 2))
			return
		}
		a := get(w.Irecv(word(), 0, 1)) // A
		b := get(w.Irecv(word(), 0, 2)) // B
		rs := []*mpi.Request{a, b}
		if wrong {
			rs = rs[:1]
		}
		get(mpi.WaitAll(rs))
	}},
	{"nonblocking barrier is never waited for", 2, misuse.RequestLost, "1A", func(w *mpi.World, wrong bool) {
		r := get(w.Ibarrier()) // A
		if !wrongHere(w, wrong) {
			get(r.Wait())
		}
	}},
	{"put with a request is never waited for", 2, misuse.RequestLost, "0A", func(w *mpi.World, wrong bool) {
		win := get(w.WinAllocate(8))
		if w.Rank() == 0 {
			ok(win.Lock(mpi.Shared, 1, 0))
			r := get(win.Rput(word(), 1, 0)) // A
			if !wrong {
				get(r.Wait())
			}
			ok(win.Unlock(1))
		}
		ok(win.Free())
	}},
	{"persistent send is not waited for at the end", 2, misuse.RequestLost, "0A 0B", func(w *mpi.World, wrong bool) {
		if w.Rank() == 1 {
			get(w.Recv(word(), 0, 1))
			return
		}
		s := get(w.SendInit(word(), 1, 1)) // A
		ok(s.Start())                      // B
		if !wrong {
			get(s.Wait())
			ok(s.Free())
		}
	}},
	{"persistent receive is never started", 2, misuse.NeverStarted, "0A", func(w *mpi.World, wrong bool) {
		if w.Rank() == 0 {
			r := get(w.RecvInit(word(), 1, 1)) // A
			if !wrong {
				ok(r.Start())
				get(r.Wait())
				ok(r.Free())
			}
		} else if !wrong {
			ok(w.Send(word(), 0, 1))
		}
	}},
	{"persistent collective is never started", 2, misuse.NeverStarted, "1A", func(w *mpi.World, wrong bool) {
		r := get(w.BcastInit(word(), 0)) // A
		if !wrongHere(w, wrong) {
			ok(r.Free())
		}
	}},
	{"persistent send is never freed", 2, misuse.NeverFreed, "0A", func(w *mpi.World, wrong bool) {
		if w.Rank() == 1 {
			get(w.Recv(word(), 0, 1))
			return
		}
		s := get(w.SendInit(word(), 1, 1)) // A
		ok(s.Start())
		get(s.Wait())
		if !wrong {
			ok(s.Free())
		}
	}},
	{"active request is started", 2, misuse.RequestUse, "1A", func(w *mpi.World, wrong bool) {
		if w.Rank() == 0 {
			for range 2 {
				ok(w.Send(word(), 1, 1))
			}
			return
		}
		r := get(w.RecvInit(word(), 0, 1))
		ok(r.Start())
		if wrong {
			_ = r.Start() // A
			get(r.Wait())
		}
		get(r.Wait())
		ok(r.Start())
		get(r.Wait())
		ok(r.Free())
	}},
	{"freed request is started", 1, misuse.RequestUse, "0A", func(w *mpi.World, wrong bool) {
		s := get(w.SendInit(nil, mpi.ProcNull, 1))
		if wrong {
			ok(s.Free())
			_ = s.Start() // A
			return
		}
		ok(s.Start())
		get(s.Wait())
		ok(s.Free())
	}},
	{"request of Isend is started", 2, misuse.RequestUse, "0A", func(w *mpi.World, wrong bool) {
		if w.Rank() == 1 {
			get(w.Recv(nil, 0, 1))
			return
		}
		s := get(w.Isend(nil, 1, 1))
		get(s.Wait())
		if wrong {
			_ = s.Start() // A
		}
	}},
	{"request is freed twice", 1, misuse.RequestUse, "0A", func(w *mpi.World, wrong bool) {
		s := get(w.SendInit(nil, mpi.ProcNull, 1))
		ok(s.Start())
		get(s.Wait())
		ok(s.Free())
		if wrong {
			_ = s.Free() // A
		}
	}},
	{"complete receive is cancelled", 2, misuse.RequestUse, "0A", func(w *mpi.World, wrong bool) {
		if w.Rank() == 1 {
			ok(w.Send(nil, 0, 1))
			return
		}
		r := get(w.Irecv(nil, 1, 1))
		get(r.Wait())
		if wrong {
			_ = r.Cancel() // A
		}
	}},
	{"active receive is freed", 2, misuse.RequestFreed, "1A 1B", func(w *mpi.World, wrong bool) {
		if w.Rank() == 0 {
			ok(w.Send(word(), 1, 1))
			return
		}
		r := get(w.Irecv(word(), 0, 1)) // A
		if wrong {
			ok(r.Free()) // B
		} else {
			get(r.Wait())
		}
	}},
	{"active collective is freed", 2, misuse.RequestFreed, "1A 1B", func(w *mpi.World, wrong bool) {
		r := get(w.Ibcast(word(), 0)) // A
		if wrongHere(w, wrong) {
			ok(r.Free()) // B
		} else {
			get(r.Wait())
		}
	}},
}

// messages are programs that lose messages, or receive them in the wrong way.
var messages = []program{
	{"message is never received", 2, misuse.MessageLost, "0A", func(w *mpi.World, wrong bool) {
		if w.Rank() == 0 {
			ok(w.Send(word(), 1, 1))
			if wrong {
				get(w.Isend(word(), 1, 2)).Free() // A
			}
			return
		}
		get(w.Recv(word(), 0, 1))
	}},
	{"send to oneself is never received", 1, misuse.MessageLost, "0A", func(w *mpi.World, wrong bool) {
		s := get(w.Isend(word(), 0, 1)) // A
		if !wrong {
			get(w.Recv(word(), 0, 1))
			get(s.Wait())
		}
	}},
	{"buffered message is never received", 2, misuse.MessageLost, "0A", func(w *mpi.World, wrong bool) {
		if w.Rank() == 0 {
			ok(w.AttachBuffer(64))
			ok(w.Bsend(word(), 1, 1)) // A
		} else if !wrong {
			get(w.Recv(word(), 0, 1))
		}
	}},
	{"receive is never matched", 2, misuse.ReceiveLost, "0A", func(w *mpi.World, wrong bool) {
		if w.Rank() == 0 {
			r := get(w.Irecv(word(), 1, 1)) // A
			if !wrong {
				ok(r.Cancel())
				get(r.Wait())
			}
		}
	}},
	{"last receive of a loop is never matched", 2, misuse.ReceiveLost, "0A", func(w *mpi.World, wrong bool) {
		const n = 4
		if w.Rank() == 1 {
			for range n {
				ok(w.Send(word(), 0, 1))
			}
			return
		}
		r := get(w.Irecv(word(), 1, 1))
		for i := range n {
			get(r.Wait())
			if wrong || i < n-1 {
				r = get(w.Irecv(word(), 1, 1)) // A
			}
		}
	}},
	{"matched message is never received", 2, misuse.MatchedLost, "0A", func(w *mpi.World, wrong bool) {
		if w.Rank() == 1 {
			get(w.Isend(word(), 0, 1)).Free()
			return
		}
		m, _, err := w.Mprobe(1, 1) // A
		ok(err)
		if !wrong {
			get(m.Recv(word()))
		}
	}},
	{"message is longer than the buffer", 2, misuse.Truncated, "0A 1B", func(w *mpi.World, wrong bool) {
		n := 2
		if wrong {
			n = 1
		}
		if w.Rank() == 0 {
			ok(w.Send(words(2), 1, 1)) // A
			return
		}
		_, _ = w.Recv(words(n), 0, 1) // B
	}},
	{"long message is longer than the buffer", 2, misuse.Truncated, "0A 1B", func(w *mpi.World, wrong bool) {
		n := big
		if wrong {
			n = big / 2
		}
		if w.Rank() == 0 {
			s := get(w.Isend(make([]byte, big), 1, 1)) // A
			_, _ = s.Wait()
			return
		}
		r := get(w.Irecv(make([]byte, n), 0, 1)) // B
		_, _ = r.Wait()
	}},
	{"matched message is longer than the buffer", 2, misuse.Truncated, "0A 1B", func(w *mpi.World, wrong bool) {
		n := 2
		if wrong {
			n = 1
		}
		if w.Rank() == 0 {
			ok(w.Send(words(2), 1, 1)) // A
			return
		}
		m, _, err := w.Mprobe(0, 1)
		ok(err)
		_, _ = m.Recv(words(n)) // B
	}},
	{"receives in the order of other sizes", 2, misuse.Truncated, "0A 1B", func(w *mpi.World, wrong bool) {
		if w.Rank() == 0 {
			ok(w.Send(words(4), 1, 1)) // A
			ok(w.Send(words(1), 1, 1))
			return
		}
		short, long := words(1), words(4)
		if wrong {
			_, _ = w.Recv(short, 0, 1) // B
			get(w.Recv(long, 0, 1))
			return
		}
		get(w.Recv(long, 0, 1))
		get(w.Recv(short, 0, 1))
	}},
	{"ready send without a receive", 2, misuse.NotReady, "0A", func(w *mpi.World, wrong bool) {
		if w.Rank() == 0 {
			if !wrong {
				get(w.Recv(nil, 1, 2))
			}
			ok(w.Rsend(word(), 1, 1)) // A
			if wrong {
				get(w.Recv(nil, 1, 2))
			}
			return
		}
		if wrong {
			get(w.Probe(0, 1))
		}
		r := get(w.Irecv(word(), 0, 1))
		ok(w.Send(nil, 0, 2))
		get(r.Wait())
	}},
	{"persistent ready send without a receive", 2, misuse.NotReady, "0A", func(w *mpi.World, wrong bool) {
		var r *mpi.Request
		if w.Rank() == 1 && !wrong {
			r = get(w.Irecv(word(), 0, 1))
		}
		ok(w.Barrier())
		if w.Rank() == 0 {
			s := get(w.RsendInit(word(), 1, 1))
			ok(s.Start()) // A
			get(s.Wait())
			ok(s.Free())
			return
		}
		if wrong {
			get(w.Probe(0, 1))
			r = get(w.Irecv(word(), 0, 1))
		}
		get(r.Wait())
	}},
}

// buffers are programs that change the buffers of pending sends.
var buffers = []program{
	{"buffer of Isend is changed", 2, misuse.BufferChange, "0A 0B", func(w *mpi.World, wrong bool) {
		if w.Rank() == 1 {
			get(w.Recv(words(1), 0, 1))
			return
		}
		b := word()
		s := get(w.Isend(b, 1, 1)) // A
		if wrong {
			b[3]++
		}
		get(s.Wait()) // B
		b[4]++
	}},
	{"buffer of a persistent synchronous send is changed", 2, misuse.BufferChange, "0A 0B", func(w *mpi.World, wrong bool) {
		if w.Rank() == 1 {
			for range 2 {
				get(w.Recv(words(1), 0, 1))
			}
			return
		}
		b := word()
		s := get(w.SsendInit(b, 1, 1))
		for i := range 2 {
			ok(s.Start()) // A
			if wrong && i == 1 {
				b[7] = 1
			}
			get(mpi.WaitAll([]*mpi.Request{s})) // B
			b[i] = 1
		}
		ok(s.Free())
	}},
	{"the next message is received into the buffer of a send", 2, misuse.BufferChange, "0A 0B", func(w *mpi.World, wrong bool) {
		peer, b, in := 1-w.Rank(), []byte{byte(w.Rank() + 1)}, make([]byte, 1)
		if wrong && w.Rank() == 0 {
			in = b
		}
		s := get(w.Isend(b, peer, 1)) // A
		get(w.Recv(in, peer, 1))
		get(s.Wait()) // B
	}},
}

// races are programs that receive from any source, where more than one message may match.
var races = []program{
	{"messages of two ranks", 3, misuse.MessageRace, "0A 1B 2B", func(w *mpi.World, wrong bool) {
		if w.Rank() > 0 {
			ok(w.Send(word(), 0, 1)) // B
			return
		}
		for i := range 2 {
			source := mpi.AnySource
			if !wrong {
				source = i + 1
			}
			get(w.Recv(word(), source, 1)) // A
		}
	}},
	{"messages of two phases", 3, misuse.MessageRace, "0A 1B 2C", func(w *mpi.World, wrong bool) {
		switch w.Rank() {
		case 0:
			get(w.Recv(word(), mpi.AnySource, 1)) // A
			if !wrong {
				ok(w.Barrier())
			}
			get(w.Recv(word(), mpi.AnySource, 1))
			if wrong {
				ok(w.Barrier())
			}
		case 1:
			ok(w.Send(word(), 0, 1)) // B
			ok(w.Barrier())
		case 2:
			if wrong {
				w.Compute(1000)
			} else {
				ok(w.Barrier())
			}
			ok(w.Send(word(), 0, 1)) // C
			if wrong {
				ok(w.Barrier())
			}
		}
	}},
	{"answer of a receive orders the second message", 3, misuse.MessageRace, "0A 1B 2C", func(w *mpi.World, wrong bool) {
		switch w.Rank() {
		case 0:
			get(w.Recv(word(), mpi.AnySource, 1)) // A
			ok(w.Send(nil, 2, 2))
			get(w.Recv(word(), mpi.AnySource, 1))
		case 1:
			ok(w.Send(word(), 0, 1)) // B
		case 2:
			if !wrong {
				get(w.Recv(nil, 0, 2))
			} else {
				w.Compute(1_000_000)
			}
			ok(w.Send(word(), 0, 1)) // C
			if wrong {
				get(w.Recv(nil, 0, 2))
			}
		}
	}},
}

// handles are programs that use communicators after their end, or do not end them.
var handles = []program{
	{"duplicate is never freed", 2, misuse.CommLeak, "0A 1A", func(w *mpi.World, wrong bool) {
		c := get(w.Dup()) // A
		if !wrong {
			ok(c.Free())
		}
	}},
	{"parts of a split are never freed", 3, misuse.CommLeak, "0A 1A 2A", func(w *mpi.World, wrong bool) {
		c := get(w.Split(w.Rank()%2, 0)) // A
		if !wrong {
			ok(c.Free())
		}
	}},
	{"communicator of a host is never freed", 2, misuse.CommLeak, "0A 1A", func(w *mpi.World, wrong bool) {
		c := get(w.SplitNode(0)) // A
		if !wrong {
			ok(c.Free())
		}
	}},
	{"freed communicator", 1, misuse.Argument, "0A", func(w *mpi.World, wrong bool) {
		c := get(w.Dup())
		if wrong {
			ok(c.Free())
		}
		_ = c.Send(nil, mpi.ProcNull, 0) // A
		if !wrong {
			ok(c.Free())
		}
	}},
	{"world is freed", 1, misuse.Argument, "0A", func(w *mpi.World, wrong bool) {
		c := w.Comm
		if !wrong {
			c = get(w.Dup())
		}
		_ = c.Free() // A
	}},
	{"window is never freed", 2, misuse.WindowLeak, "0A 1A", func(w *mpi.World, wrong bool) {
		win := get(w.WinCreate(words(2))) // A
		if !wrong {
			ok(win.Free())
		}
	}},
	{"window is used after Free", 1, misuse.Argument, "0A", func(w *mpi.World, wrong bool) {
		win := get(w.WinAllocate(8))
		if wrong {
			ok(win.Free())
		}
		_ = win.Fence(mpi.NoSucceed) // A
		if !wrong {
			ok(win.Free())
		}
	}},
}

// arguments are programs that pass invalid arguments, which calls refuse.
var arguments = []program{
	{"destination", 2, misuse.Argument, "0A", func(w *mpi.World, wrong bool) {
		to := mpi.ProcNull
		if wrong {
			to = 2
		}
		if w.Rank() == 0 {
			_ = w.Send(nil, to, 1) // A
		}
	}},
	{"any source in a send", 1, misuse.Argument, "0A", func(w *mpi.World, wrong bool) {
		to := mpi.ProcNull
		if wrong {
			to = mpi.AnySource
		}
		_ = w.Rsend(nil, to, 1) // A
	}},
	{"tag", 1, misuse.Argument, "0A", func(w *mpi.World, wrong bool) {
		tag := mpi.TagMax
		if wrong {
			tag++
		}
		_ = w.Send(nil, mpi.ProcNull, tag) // A
	}},
	{"any tag in a send", 1, misuse.Argument, "0A", func(w *mpi.World, wrong bool) {
		tag := 0
		if wrong {
			tag = mpi.AnyTag
		}
		_ = w.Ssend(nil, mpi.ProcNull, tag) // A
	}},
	{"root", 2, misuse.Argument, "0A 1A", func(w *mpi.World, wrong bool) {
		root := 1
		if wrong {
			root = 2
		}
		_ = w.Bcast(nil, root) // A
	}},
	{"operation of a type", 2, misuse.Argument, "0A 1A", func(w *mpi.World, wrong bool) {
		op := mpi.Sum
		if wrong {
			op = mpi.BAnd
		}
		_ = w.Allreduce(word(), word(), mpi.Float64, op) // A
	}},
	{"same buffer for both", 2, misuse.Argument, "0A 1A", func(w *mpi.World, wrong bool) {
		in, out := word(), word()
		if wrong {
			in = out
		}
		_ = w.Allreduce(in, out, mpi.Int64, mpi.Sum) // A
	}},
	{"size of an alltoall", 2, misuse.Argument, "0A 1A", func(w *mpi.World, wrong bool) {
		n := 16
		if wrong {
			n = 15
		}
		_ = w.Alltoall(make([]byte, n), make([]byte, n)) // A
	}},
	{"no buffer is attached", 2, misuse.Argument, "0A", func(w *mpi.World, wrong bool) {
		if w.Rank() == 1 {
			if !wrong {
				get(w.Recv(word(), 0, 1))
			}
			return
		}
		if !wrong {
			ok(w.AttachBuffer(8))
		}
		_ = w.Bsend(word(), 1, 1) // A
	}},
}
