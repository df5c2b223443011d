package iwarp

import (
	"testing"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// countingOwner counts completions without allocating.
type countingOwner struct {
	recv     Receive
	done     int
	received int
}

func (m *countingOwner) NextReceive() *Receive              { return &m.recv }
func (m *countingOwner) Received(*Receive, verbs.WC, bool)  { m.received++ }
func (m *countingOwner) Completed(*Request, verbs.WCStatus) { m.done++ }
func (m *countingOwner) Retired(*Request)                   {}
func (m *countingOwner) Ended(e End)                        { panic("the stream ended: " + e.Error.String()) }

// loop is two streams connected to each other: the output of one is the input of the other.
type loop struct {
	base   [2]nic.Base
	layer  [2]Layer
	ep     [2]Endpoint
	owner  [2]countingOwner
	stream [2]Stream
	region [2]*nic.Region
	req    Request
	seg    Segment
	flat   []byte
	limit  int
}

func newLoop(tb testing.TB, limit int) *loop {
	l := &loop{limit: limit, flat: make([]byte, 0, limit)}
	for i := range 2 {
		l.base[i].Init(nic.Limits{}.OrDefault(), nic.Policy{})
		l.layer[i].NIC = &l.base[i]
		pd, err := l.base[i].AllocPD()
		if err != nil {
			tb.Fatal(err)
		}
		if l.region[i], err = l.base[i].RegMR(pd, make(nic.Bytes, 1<<20), 0, allAccess); err != nil {
			tb.Fatal(err)
		}
		l.ep[i] = Endpoint{Layer: &l.layer[i], PD: pd, QPN: 1, Access: RemoteAccess}
		sgl := []verbs.SGE{sge(l.region[i], 0, 1<<20)}
		l.owner[i].recv = Receive{Receive: nic.Receive{SGL: sgl, Length: 1 << 20}, PD: pd}
		l.stream[i].Open(&l.ep[i], &l.owner[i], Options{IRD: 16, ORD: 16})
	}
	l.req.SGL = make([]verbs.SGE, 1)
	return l
}

// do executes one request of n octets.
func (l *loop) do(op verbs.WROpcode, n int) {
	l.req.Op, l.req.Length = op, uint32(n)
	l.req.SGL[0] = sge(l.region[0], 0, n)
	l.req.Remote = verbs.Remote{Addr: l.region[1].Addr, RKey: verbs.RKey(l.region[1].Key)}
	l.stream[0].Post(&l.req)
	for l.move(0) || l.move(1) {
	}
}

func (l *loop) move(from int) bool {
	moved := false
	for l.stream[from].Output(l.limit, &l.seg) {
		l.flat = append(l.flat[:0], l.seg.Header...)
		for _, p := range l.seg.Payload {
			l.flat = append(l.flat, p...)
		}
		l.stream[1-from].Input(l.flat)
		l.stream[from].Accepted(1)
		moved = true
	}
	return moved
}

var loops = map[string]struct {
	op verbs.WROpcode
	n  int
}{
	"send/0B":   {verbs.OpSend, 0},
	"send/64B":  {verbs.OpSend, 64},
	"write/64B": {verbs.OpRDMAWrite, 64},
	"write/64K": {verbs.OpRDMAWrite, 1 << 16},
	"writeimm":  {verbs.OpRDMAWriteImm, 64},
	"read/64B":  {verbs.OpRDMARead, 64},
	"read/64K":  {verbs.OpRDMARead, 1 << 16},
	"fetchadd":  {verbs.OpAtomicFetchAdd, 8},
	"immediate": {verbs.OpSendImm, 0},
}

func TestSteadyStateDoesNotAllocate(t *testing.T) {
	for name, c := range loops {
		l := newLoop(t, 1442)
		l.do(c.op, c.n)
		done := l.owner[0].done
		if n := testing.AllocsPerRun(100, func() { l.do(c.op, c.n) }); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
		if got := l.owner[0].done - done; got != 101 {
			t.Errorf("%s: %d of 101 completed", name, got)
		}
	}
}

func BenchmarkMessage(b *testing.B) {
	for _, limit := range []int{1442, 8942} {
		for name, c := range loops {
			b.Run(name+"/limit="+map[int]string{1442: "1442", 8942: "8942"}[limit], func(b *testing.B) {
				l := newLoop(b, limit)
				b.SetBytes(int64(c.n))
				b.ReportAllocs()
				for b.Loop() {
					l.do(c.op, c.n)
				}
			})
		}
	}
}

// BenchmarkOutput measures Output alone; the segments are discarded.
func BenchmarkOutput(b *testing.B) {
	l := newLoop(b, 1442)
	b.SetBytes(1 << 16)
	b.ReportAllocs()
	for b.Loop() {
		l.req.Op, l.req.Length = verbs.OpRDMAWrite, 1<<16
		l.req.SGL[0] = sge(l.region[0], 0, 1<<16)
		l.stream[0].Post(&l.req)
		for l.stream[0].Output(1442, &l.seg) {
			l.stream[0].Accepted(1)
		}
	}
}

// BenchmarkInput measures Input alone.
func BenchmarkInput(b *testing.B) {
	l := newLoop(b, 1442)
	g := tagged(wire.OpWrite, l.region[1].Key, l.region[1].Addr, make([]byte, 1428), true)
	seg := g.Append(nil)
	b.SetBytes(1428)
	b.ReportAllocs()
	for b.Loop() {
		l.stream[1].Input(seg)
	}
}
