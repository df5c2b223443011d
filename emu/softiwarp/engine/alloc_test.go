package engine

import (
	"testing"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/iwarp"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// direct is a connection whose ends write directly into each other.
type direct struct {
	*pair
	src, dst *nic.Region
	vecs     [][]byte
	flat     []byte
	wc       [8]verbs.WC
	wr       verbs.SendWR
	sgl      [1]verbs.SGE
	rwr      verbs.RecvWR
	rsgl     [1]verbs.SGE
}

func newDirect(tb testing.TB, opts ...hostOption) *direct {
	a, b := newHost(tb, opts...), newHost(tb, opts...)
	d := &direct{pair: connect(tb, a, b), vecs: make([][]byte, 0, 256), flat: make([]byte, 0, 1<<20)}
	d.src, _ = a.region(1<<20, allAccess)
	d.dst, _ = b.region(1<<20, allAccess)
	return d
}

// do executes a request of n octets.
func (d *direct) do(op verbs.WROpcode, n int) {
	if op == verbs.OpSend {
		d.rsgl[0] = sge(d.dst, 0, n)
		d.rwr = verbs.RecvWR{SGL: d.rsgl[:]}
		must.Do(d.t, d.b.qp.PostRecv(&d.rwr))
	}
	d.sgl[0] = sge(d.src, 0, n)
	d.wr = verbs.SendWR{Opcode: op, SGL: d.sgl[:], Remote: verbs.Remote{Addr: d.dst.Addr, RKey: verbs.RKey(d.dst.Key)}}
	must.Do(d.t, d.a.qp.PostSend(&d.wr, Refs{}))
	for d.move(d.a.nic, d.cb) || d.move(d.b.nic, d.ca) {
	}
	if n, _ := d.a.SendCQ.Poll(d.wc[:]); n != 1 || d.wc[0].Status != verbs.WCSuccess {
		d.t.Fatalf("%d completions: %+v", n, d.wc[0])
	}
	must.Get(d.b.RecvCQ.Poll(d.wc[:]))(d.t)
}

func (d *direct) move(n *NIC, to *Conn) (moved bool) {
	for c, ok := n.NextOutput(); ok; c, ok = n.NextOutput() {
		for {
			bufs, then := c.Output(d.vecs)
			if then != link.StreamOpen {
				d.t.Fatal("the connection ends")
			}
			if len(bufs) == 0 {
				break
			}
			d.flat = d.flat[:0]
			for _, b := range bufs {
				d.flat = append(d.flat, b...)
			}
			c.Sent(0, len(d.flat), 0)
			to.Input(0, d.flat)
			moved = true
		}
	}
	return moved
}

var directCases = []struct {
	name string
	op   verbs.WROpcode
	n    int
}{
	{"send/64", verbs.OpSend, 64},
	{"write/64", verbs.OpRDMAWrite, 64},
	{"write/64K", verbs.OpRDMAWrite, 1 << 16},
	{"read/64", verbs.OpRDMARead, 64},
	{"read/64K", verbs.OpRDMARead, 1 << 16},
	{"fetchadd", verbs.OpAtomicFetchAdd, 8},
}

func TestSteadyStateDoesNotAllocate(t *testing.T) {
	for _, c := range directCases {
		for name, opts := range map[string][]hostOption{"crc": nil, "markers": {func(c *Config, _ *iwarp.QueueConfig) { c.MPA.Markers = true }}} {
			d := newDirect(t, opts...)
			for range 20 {
				d.do(c.op, c.n)
			}
			if n := testing.AllocsPerRun(100, func() { d.do(c.op, c.n) }); n != 0 {
				t.Errorf("%s with %s allocates %v times", c.name, name, n)
			}
		}
	}
}

func BenchmarkMessage(b *testing.B) {
	for _, c := range directCases {
		for name, opts := range map[string][]hostOption{"crc": nil, "nocrc": {noCRC}} {
			b.Run(c.name+"/"+name, func(b *testing.B) {
				d := newDirect(b, opts...)
				b.SetBytes(int64(c.n))
				b.ReportAllocs()
				for b.Loop() {
					d.do(c.op, c.n)
				}
			})
		}
	}
}
