package mpi_test

import (
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/mpi/wire"
)

// loopbackCarrier is the carrier of a single rank. It delivers a sent message at the next
// Progress, and allocates no memory.
type loopbackCarrier struct {
	*nic
	up       mpi.Upper
	messages [64]loopbackMessage
	first    int
	n        int
}

type loopbackMessage struct {
	h    wire.Header
	data [64]byte
	len  int
}

func (l *loopbackCarrier) Now() time.Duration    { return 0 }
func (l *loopbackCarrier) CanSend(int, int) bool { return true }
func (l *loopbackCarrier) Wait(time.Duration)    {}
func (l *loopbackCarrier) AllDelivered() bool    { return l.n == 0 }
func (l *loopbackCarrier) Close() error          { return nil }

func (l *loopbackCarrier) Send(_ int, h *wire.Header, data []byte, owner any) {
	w := &l.messages[(l.first+l.n)%len(l.messages)]
	w.h, w.len = *h, copy(w.data[:], data)
	l.n++
	if owner != nil {
		l.up.Finished(owner, 0, nil)
	}
}

func (l *loopbackCarrier) Flush() bool        { return false }
func (l *loopbackCarrier) PollFast(bool) bool { return l.Progress() }

func (l *loopbackCarrier) Progress() bool {
	if l.n == 0 {
		return false
	}
	w := &l.messages[l.first]
	l.first, l.n = (l.first+1)%len(l.messages), l.n-1
	if err := l.up.Arrived(0, &w.h, w.data[:w.len]); err != nil {
		panic(err)
	}
	return true
}

// runSingleRank runs a program in a world of one rank.
func runSingleRank(t testing.TB, program func(*mpi.World) error) {
	f := newFabric(t, 1, 1, true)
	e := f.newEnv(0, &proc{f: f})
	o := mpi.Options{Open: func(_ *transport.Env, up mpi.Upper) (mpi.Carrier, error) {
		return &loopbackCarrier{nic: f.nics[0], up: up}, nil
	}}
	if err := mpi.Run(e, o, program); err != nil {
		t.Error(err)
	}
}

// Nonblocking calls allocate only their requests, blocking and persistent calls nothing.
func TestSmallMessagesAllocateOnlyRequests(t *testing.T) {
	runSingleRank(t, func(w *mpi.World) error {
		out, in := make([]byte, 8), make([]byte, 8)
		posted := func() { // the receive is posted before the send
			r, _ := w.Irecv(in, 0, 1)
			s, _ := w.Isend(out, 0, 1)
			if _, err := s.Wait(); err != nil {
				t.Error(err)
			}
			if _, err := r.Wait(); err != nil {
				t.Error(err)
			}
		}
		unexpected := func() {
			if err := w.Send(out, 0, 1); err != nil {
				t.Error(err)
			}
			if _, err := w.Probe(0, 1); err != nil {
				t.Error(err)
			}
			if _, err := w.Recv(in, mpi.AnySource, 1); err != nil {
				t.Error(err)
			}
		}
		sendrecv := func() {
			if _, err := w.Sendrecv(out, 0, 2, in, 0, mpi.AnyTag); err != nil {
				t.Error(err)
			}
		}
		p, _ := w.SendInit(out, 0, 3)
		q, _ := w.RecvInit(in, 0, 3)
		persistent := func() {
			if p.Start() != nil || q.Start() != nil {
				t.Error("not started")
			}
			if _, _, err := p.Test(); err != nil {
				t.Error(err)
			}
			if _, err := q.Wait(); err != nil {
				t.Error(err)
			}
			if p.Active() {
				if _, err := p.Wait(); err != nil {
					t.Error(err)
				}
			}
		}
		for _, c := range []struct {
			name string
			do   func()
			most float64
		}{{"Isend, Irecv", posted, 2}, {"Send, Recv", unexpected, 0}, {"Sendrecv", sendrecv, 0}, {"persistent", persistent, 0}} {
			c.do()
			if n := testing.AllocsPerRun(100, c.do); n > c.most {
				t.Errorf("%s: %v allocations, want %v", c.name, n, c.most)
			}
		}
		return nil
	})
}

// Operations that need large scratch memory use the same memory again: they allocate as often as small ones.
func TestLargeCollectivesKeepTheirScratchMemory(t *testing.T) {
	runSingleRank(t, func(w *mpi.World) error {
		allocations := func(bytes int) float64 {
			in, out := make([]byte, bytes), make([]byte, bytes)
			reduceScatter := func() {
				if err := w.ReduceScatterBlock(in, out, mpi.Float64, mpi.Sum); err != nil {
					t.Error(err)
				}
			}
			reduceScatter()
			return testing.AllocsPerRun(10, reduceScatter)
		}
		if large, small := allocations(1<<20), allocations(1<<10); large > small {
			t.Errorf("%v allocations with 1 MiB, and %v with 1 KiB", large, small)
		}
		return nil
	})
}

func BenchmarkSmallMessage(b *testing.B) {
	runSingleRank(b, func(w *mpi.World) error {
		out, in := make([]byte, 8), make([]byte, 8)
		b.ReportAllocs()
		for b.Loop() {
			must.Get(w.Sendrecv(out, 0, 1, in, 0, 1))(b)
		}
		return nil
	})
}

func BenchmarkIsendIrecvWait(b *testing.B) {
	runSingleRank(b, func(w *mpi.World) error {
		out, in := make([]byte, 8), make([]byte, 8)
		b.ReportAllocs()
		for b.Loop() {
			r := must.Get(w.Irecv(in, 0, 1))(b)
			s := must.Get(w.Isend(out, 0, 1))(b)
			must.Get(s.Wait())(b)
			must.Get(r.Wait())(b)
		}
		return nil
	})
}
