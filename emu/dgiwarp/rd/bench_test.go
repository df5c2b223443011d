package rd

import (
	"testing"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// pair is two layers connected without a network.
type pair struct {
	a, b    *host
	p       *Peer
	now     mono.Time
	buf     []byte
	packet  wire.Packet
	header  []byte
	payload [][]byte
}

func newPair(tb testing.TB, size int) *pair {
	n := newNetwork(tb, 1, impairment{})
	r := &pair{a: n.host(Config{}), b: n.host(Config{}), buf: make([]byte, 0, 1<<11), header: make([]byte, 18), payload: [][]byte{make([]byte, size)}}
	r.exchange(tb, 1)
	return r
}

// exchange sends count segments from a to b, and carries all packets in both directions.
func (r *pair) exchange(tb testing.TB, count int) {
	var err error
	if r.p, err = r.a.layer.Peer(r.now, r.a.key(r.b), 0, 0); err != nil {
		tb.Fatal(err)
	}
	for count > 0 || r.p.Waiting() > 0 {
		for count > 0 && r.p.Room() > 0 {
			r.p.Send(r.now, r.header, r.payload)
			count--
		}
		r.now += 1000
		moved := r.carry(r.a, r.b)
		if r.carry(r.b, r.a)+moved == 0 {
			r.now = max(r.now, min(r.a.layer.Deadline(), r.b.layer.Deadline()))
			r.a.layer.Tick(r.now)
			r.b.layer.Tick(r.now)
		}
	}
}

func (r *pair) carry(from, to *host) (moved int) {
	for {
		out, ok := from.layer.Output(r.now, r.buf)
		if !ok {
			return moved
		}
		moved++
		if !wire.CheckCRC(out.Payload) || r.packet.Parse(out.Payload) != nil {
			panic("not intact")
		}
		to.layer.Input(r.now, from.addr, &r.packet, false)
		for e, ok := to.layer.Next(); ok; e, ok = to.layer.Next() {
			if e.Kind == EventSegment {
				to.layer.Accept(r.now)
			}
		}
	}
}

func TestSteadyStateDoesNotAllocate(t *testing.T) {
	r := newPair(t, 64)
	r.exchange(t, 1000)
	if n := testing.AllocsPerRun(10, func() { r.exchange(t, 1000) }); n != 0 {
		t.Errorf("1000 segments allocate %v times", n)
	}
}

// Nor does it allocate if segments are stored after gaps.
func TestReorderingDoesNotAllocate(t *testing.T) {
	r := newPair(t, 64)
	held := make([]byte, 0, 2048)
	swap := func() {
		r.p.Send(r.now, r.header, r.payload)
		r.p.Send(r.now, r.header, r.payload)
		r.now += 100_000
		first, _ := r.a.layer.Output(r.now, held)
		r.carry(r.a, r.b)
		_ = r.packet.Parse(first.Payload)
		r.b.layer.Input(r.now, r.a.addr, &r.packet, false)
		for _, ok := r.b.layer.Next(); ok; _, ok = r.b.layer.Next() {
			r.b.layer.Accept(r.now)
		}
		r.carry(r.b, r.a)
		for _, ok := r.a.layer.Next(); ok; _, ok = r.a.layer.Next() {
		}
	}
	for range 10 {
		swap()
	}
	before := r.b.layer.Count.Delivered
	if n := testing.AllocsPerRun(100, swap); n != 0 {
		t.Errorf("a swapped pair allocates %v times", n)
	}
	if got := r.b.layer.Count.Delivered - before; got != 202 {
		t.Errorf("%d delivered, want 202", got)
	}
}

// BenchmarkSegment measures one segment on both sides: queueing, building the packet, CRC, parsing,
// ordering, acknowledging.
func BenchmarkSegment(b *testing.B) {
	for _, size := range []struct {
		name  string
		bytes int
	}{{"64", 64}, {"1380", 1380}} {
		b.Run(size.name, func(b *testing.B) {
			r := newPair(b, size.bytes)
			b.SetBytes(int64(size.bytes))
			b.ReportAllocs()
			b.ResetTimer()
			r.exchange(b, b.N)
		})
	}
}
