package mpihost

import (
	"errors"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// freeLink is one end of a network that costs nothing: it passes packets through memory. A receive
// that finds none lets the other goroutines run, so that two ranks on one processor take turns.
type freeLink struct {
	peer     *freeLink
	mu       sync.Mutex
	incoming [2][64]link.Datagram // one of them is filled by the peer, the other one was received
	filling  int
	queued   int // datagrams in incoming[filling]
	sent     int
	received time.Time     // when Recv returned the last datagrams
	reacted  time.Duration // total time from then to the next Send
	woken    chan struct{}
}

// newFreeLinks returns both ends of a network.
func newFreeLinks() (ends [2]*freeLink) {
	for i := range ends {
		ends[i] = &freeLink{woken: make(chan struct{}, 1)}
	}
	ends[0].peer, ends[1].peer = ends[1], ends[0]
	return ends
}

// Send copies datagrams to the peer, as many as it has room for, and adds the time since the last Recv
// to reacted.
func (l *freeLink) Send(_ mono.Time, ds []link.Datagram) (int, error) {
	l.reacted += time.Since(l.received)
	to := l.peer
	to.mu.Lock()
	defer to.mu.Unlock()
	queue := &to.incoming[to.filling]
	n := min(len(ds), len(queue)-to.queued)
	for i := range n {
		d := &queue[to.queued]
		payload := append(d.Payload[:0], ds[i].Payload...)
		*d = ds[i]
		d.Payload = payload
		to.queued++
	}
	l.sent += n
	return n, nil
}

// Recv returns all datagrams that have arrived. If there are none, it first lets the peer run.
func (l *freeLink) Recv(_ mono.Time, ds []link.Datagram) (int, error) {
	l.mu.Lock()
	empty := l.queued == 0
	l.mu.Unlock()
	if empty {
		runtime.Gosched()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	n := copy(ds, l.incoming[l.filling][:l.queued]) // all, since ds has room for a batch
	l.filling, l.queued = 1-l.filling, 0
	if n > 0 {
		l.received = time.Now()
	}
	return n, nil
}

// WaitReadable blocks until Wake: a device's background goroutine must not use the link.
func (l *freeLink) WaitReadable(time.Duration) error { <-l.woken; return nil }

// Wake ends the current WaitReadable, or else the next.
func (l *freeLink) Wake() {
	select {
	case l.woken <- struct{}{}:
	default:
	}
}

func (l *freeLink) MTU() int     { return 9000 }
func (l *freeLink) Close() error { return nil }
func (l *freeLink) Features() link.Features {
	return link.Features{SeesHeader: true, SetsHeader: true}
}

// pairControl is the out-of-band channel between two ranks of one process.
type pairControl struct {
	in, out chan []byte
	meet    chan struct{}
	first   bool
}

func (c *pairControl) Send(_ int, msg []byte) error { c.out <- slices.Clone(msg); return nil }

// Recv returns the next message of the other rank.
func (c *pairControl) Recv(_ int, timeout time.Duration) ([]byte, error) {
	if timeout < 0 {
		return <-c.in, nil
	}
	select {
	case msg := <-c.in:
		return msg, nil
	case <-time.After(timeout):
		return nil, verbs.ErrTimeout
	}
}

// Barrier waits for the other rank.
func (c *pairControl) Barrier(time.Duration) error {
	if c.first {
		c.meet <- struct{}{}
	} else {
		<-c.meet
	}
	return nil
}
func (c *pairControl) Gone(int) bool         { return false }
func (c *pairControl) Abort(_ int, s string) { panic(s) }

// BenchmarkRoundTrip measures the CPU time of a ping-pong of two ranks over soft-RoCE, on one
// processor and a network that costs nothing: half a round trip is a send and a receive, with their
// packets. The metric min-ns/half is that of the fastest batch, which other programs disturb least.
func BenchmarkRoundTrip(b *testing.B) {
	sent := runPair(b, func(w *mpi.World, l *freeLink) error { return pingPong(b, w, l) })
	b.ReportMetric(float64(sent)/float64(b.N+warmUp)/(2*batch), "packets/message")
}

// runPair runs a program as two ranks over soft-RoCE, on one processor and a network that costs nothing.
// It returns the number of packets.
func runPair(b *testing.B, program func(*mpi.World, *freeLink) error) (packets int) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	addrs := [2]netip.Addr{netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")}
	links, meet := newFreeLinks(), make(chan struct{})
	messages := [2]chan []byte{make(chan []byte, 64), make(chan []byte, 64)}
	var errs [2]error
	var all sync.WaitGroup
	for i := range links {
		device := must.Get(softroce.OnLink(links[i], softroce.Config{Addrs: addrs[i : i+1]}))(b)
		e := &transport.Env{
			Rank: i, Size: 2, Nodes: []int{0, 1}, Seed: 1, Proc: traffic.RealTime(), Concurrent: true,
			Control: &pairControl{in: messages[i], out: messages[1-i], meet: meet, first: i == 0},
			NICs:    []transport.NIC{{Device: device, Addr: addrs[i]}},
		}
		e.Go = func(_ string, task func(verbs.Proc)) { go task(e.Proc) }
		all.Go(func() {
			errs[i] = errors.Join(mpi.Run(e, mpi.Options{}, func(w *mpi.World) error { return program(w, links[i]) }), device.Close())
		})
	}
	all.Wait()
	must.Do(b, errors.Join(errs[:]...))
	return links[0].sent + links[1].sent
}

// BenchmarkCollectives measures collective operations of two ranks. The metric min-ns/call is that of
// the fastest batch.
func BenchmarkCollectives(b *testing.B) {
	var buffers [2]struct{ small, both, result []byte } // by rank
	for i := range buffers {
		buffers[i].small, buffers[i].both, buffers[i].result = make([]byte, 8), make([]byte, 16), make([]byte, 16)
	}
	for _, c := range []struct {
		name string
		call func(w *mpi.World) error
	}{
		{"barrier", func(w *mpi.World) error { return w.Barrier() }},
		{"bcast", func(w *mpi.World) error { return w.Bcast(buffers[w.Rank()].small, 0) }},
		{"allreduce", func(w *mpi.World) error { return w.Allreduce(mpi.InPlace, buffers[w.Rank()].small, mpi.Int64, mpi.Sum) }},
		{"allgather", func(w *mpi.World) error { return w.Allgather(buffers[w.Rank()].small, buffers[w.Rank()].result) }},
		{"alltoall", func(w *mpi.World) error { return w.Alltoall(buffers[w.Rank()].both, buffers[w.Rank()].result) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			runPair(b, func(w *mpi.World, _ *freeLink) error { return callOften(b, w, c.call) })
		})
	}
}

// callOften makes a collective call in b.N batches after a warm-up.
func callOften(b *testing.B, w *mpi.World, call func(*mpi.World) error) error {
	fastest := time.Hour
	for i := range warmUp + b.N {
		if i == warmUp && w.Rank() == 0 {
			b.ResetTimer()
		}
		if err := w.Barrier(); err != nil {
			return err
		}
		began := time.Now()
		for range batch {
			if err := call(w); err != nil {
				return err
			}
		}
		fastest = min(fastest, time.Since(began))
	}
	if w.Rank() == 0 {
		b.ReportMetric(float64(fastest.Nanoseconds())/batch, "min-ns/call")
	}
	return nil
}

// A batch of pingPong is a number of round trips; the first warmUp batches do not count.
const warmUp, batch = 20, 64

// pingPong sends 8 bytes to and fro, in b.N batches after a warm-up. Rank 0 reports the time of half a
// round trip, and of its part from the arrival of a packet at l to the answer.
func pingPong(b *testing.B, w *mpi.World, l *freeLink) error {
	buf, fastest, reaction := make([]byte, 8), time.Hour, time.Hour
	for i := range warmUp + b.N {
		if i == warmUp && w.Rank() == 0 {
			b.ResetTimer()
		}
		l.reacted = 0
		began := time.Now()
		for range batch {
			for turn := range 2 {
				var err error
				if turn == w.Rank() {
					err = w.Send(buf, 1-w.Rank(), 0)
				} else {
					_, err = w.Recv(buf, 1-w.Rank(), 0)
				}
				if err != nil {
					return err
				}
			}
		}
		if i >= warmUp {
			fastest, reaction = min(fastest, time.Since(began)), min(reaction, l.reacted)
		}
	}
	if w.Rank() == 0 {
		b.ReportMetric(float64(fastest.Nanoseconds())/(2*batch), "min-ns/half")
		b.ReportMetric(float64(reaction.Nanoseconds())/batch, "min-ns/reaction")
	}
	return nil
}
