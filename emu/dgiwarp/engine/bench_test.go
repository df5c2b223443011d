package engine

import (
	"runtime"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// directPair sends messages between two QPs without a network.
type directPair struct {
	a, b *testQP
	now  mono.Time
	ds   []link.Datagram
	wr   verbs.SendWR
	refs Refs
	recv verbs.RecvWR
	wcs  [64]verbs.WC
}

func newDirectPair(tb testing.TB, reliable bool, size int) *directPair {
	_, a, b := pair(tb, reliable)
	l := &directPair{a: a, b: b, ds: make([]link.Datagram, 64), refs: Refs{AH: a.h.ah(b.h.addr)}}
	l.ds[0].Payload = make([]byte, 0, 64*testMTU)
	l.wr = verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: a.sge(0, size), UD: verbs.UD{QPN: verbs.QPN(b.QPN), QKey: testKey}}
	l.recv = verbs.RecvWR{SGL: b.sge(recvAt, size+verbs.GRHLen)}
	l.send(tb, 64)
	return l
}

// send sends count messages, at most 32 at a time.
func (l *directPair) send(tb testing.TB, count int) {
	for count > 0 {
		n := min(count, 32)
		count -= n
		for range n {
			must.Do(tb, l.b.PostRecv(&l.recv))
			must.Do(tb, l.a.PostSend(l.now, &l.wr, l.refs))
		}
		for sent, got := 0, 0; sent < n || got < n; {
			l.now += 1000
			if l.transmit(l.a, l.b)+l.transmit(l.b, l.a) == 0 {
				l.now = max(l.now, min(l.a.h.nic.Deadline(), l.b.h.nic.Deadline()))
				l.a.h.nic.Tick(l.now)
				l.b.h.nic.Tick(l.now)
			}
			k, _ := l.a.h.cq.Poll(l.wcs[:])
			sent += k
			k, _ = l.b.h.cq.Poll(l.wcs[:])
			got += k
		}
	}
}

func (l *directPair) transmit(from, to *testQP) int {
	n := from.h.nic.Output(l.now, l.ds)
	for i := range n {
		to.h.nic.Input(l.now, &l.ds[i])
	}
	return n
}

func TestSteadyStateDoesNotAllocate(t *testing.T) {
	for _, reliable := range []bool{false, true} {
		for _, size := range []int{64, 1400, 10_000} {
			l := newDirectPair(t, reliable, size)
			l.send(t, 256)
			if n := testing.AllocsPerRun(5, func() { l.send(t, 128) }); n != 0 {
				t.Errorf("reliable %v: 128 messages of %d bytes allocate %v times", reliable, size, n)
			}
		}
	}
}

// BenchmarkMessage measures a message on both sides, from posting to completion.
func BenchmarkMessage(b *testing.B) {
	for _, c := range []struct {
		name     string
		reliable bool
		size     int
	}{{"ud/64", false, 64}, {"ud/1380", false, 1380}, {"ud/64K", false, 1 << 16}, {"rd/64", true, 64}, {"rd/1380", true, 1380}, {"rd/64K", true, 1 << 16}} {
		b.Run(c.name, func(b *testing.B) {
			l := newDirectPair(b, c.reliable, c.size)
			b.SetBytes(int64(c.size))
			b.ReportAllocs()
			b.ResetTimer()
			l.send(b, b.N)
		})
	}
}

// TestTenThousandPeersOfOneQP measures the memory of an RD QP per peer, after a message each way.
func TestTenThousandPeersOfOneQP(t *testing.T) {
	const peers = 10_000
	w := newNetwork(t)
	hub := w.host().newQP(true)
	other := w.host(func(c *Config) { c.Limits.QPs = peers + 1 })
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	small := func(c *QPConfig) { c.Caps = verbs.QPCaps{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1} }
	ends := make([]*testQP, peers)
	for i := range ends {
		ends[i] = other.newQP(true, small)
		ends[i].base = 0
		ends[i].recv(1, 0, 100)
	}
	before := heap()
	for from := 0; from < peers; from += 50 {
		for _, e := range ends[from : from+50] {
			hub.recv(1, 0, 200)
			e.send(hub, 1, 100)
		}
		w.run(100 * time.Microsecond)
		for _, e := range ends[from : from+50] {
			hub.send(e, 2, 50)
		}
		w.run(400 * time.Microsecond)
		hub.expectSuccess(100)
		for _, e := range ends[from : from+50] {
			e.expectSuccess(2)
		}
	}
	w.inFlight = nil
	after := heap()
	if n := hub.h.nic.rd.Peers(); n != peers {
		t.Fatalf("%d peers", n)
	}
	// Both sides keep the state of each peer.
	each := float64(after-before) / (2 * peers)
	t.Logf("%.0f bytes per peer, with flows in both directions", each)
	if each > maxBytesPerPeer {
		t.Errorf("%.0f bytes per peer, want at most %d", each, maxBytesPerPeer)
	}
	w.run(time.Minute)
	if n := hub.h.nic.rd.Peers(); n != 0 {
		t.Errorf("%d peers after a minute", n)
	}
	if left := heap(); left > before+(after-before)/4 {
		t.Errorf("%d KB of %d KB are still allocated", (int64(left)-int64(before))>>10, (after-before)>>10)
	}
}

// maxBytesPerPeer is the limit in the specification for all layers together.
const maxBytesPerPeer = 2048
