package engine

import (
	"fmt"
	"testing"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// duplex connects two NICs through memory in one goroutine. It measures only the engines.
type duplex struct {
	a, b   *host
	qa, qb *QP
	batch  []link.Datagram
	now    mono.Time
	wcs    [64]verbs.WC
}

func newDuplex(b testing.TB, mode ICRCMode, mtu verbs.MTU) *duplex {
	edit := func(c *Config) { c.ICRC = mode }
	d := &duplex{a: newHost(b, "fd00::1", edit), b: newHost(b, "fd00::2", edit), batch: make([]link.Datagram, 64), now: 1}
	for i := range d.batch {
		d.batch[i].Payload = make([]byte, 0, 4300)
	}
	caps := func(c *QPConfig) { c.Caps.MaxSendWR, c.Caps.MaxRecvWR = 256, 512 }
	d.qa, d.qb = d.a.qp(verbs.QPTypeRC, caps), d.b.qp(verbs.QPTypeRC, caps)
	attr := func(a *verbs.QPAttr) { a.PathMTU, a.MaxRdAtomic, a.MaxDestRdAtomic = mtu, 16, 16 }
	d.a.ready(d.qa, d.b.addr, d.qb.num, attr)
	d.b.ready(d.qb, d.a.addr, d.qa.num, attr)
	return d
}

// exchange moves packets both ways until neither NIC has more to send.
func (d *duplex) exchange() {
	for moved := true; moved; {
		moved = d.move(d.a.nic, d.b.nic)
		moved = d.move(d.b.nic, d.a.nic) || moved
	}
}

func (d *duplex) move(from, to *NIC) bool {
	n := from.Output(d.now, d.batch)
	for i := range n {
		to.Input(d.now, &d.batch[i])
	}
	d.now += 1000
	return n > 0
}

// complete checks that n requests of the first NIC have succeeded.
func (d *duplex) complete(b testing.TB, n int) {
	for n > 0 {
		k, err := d.a.cq.Poll(d.wcs[:])
		if err != nil || k == 0 {
			b.Fatalf("%d completions missing: %v", n, err)
		}
		for i := range k {
			if d.wcs[i].Status != verbs.WCSuccess {
				b.Fatalf("%+v", d.wcs[i])
			}
		}
		n -= k
	}
}

func (d *duplex) packets() uint64 { return d.a.nic.Count.Sent + d.b.nic.Count.Sent }

// stream benchmarks requests of n bytes, posted depth at a time.
func (d *duplex) stream(b *testing.B, op verbs.WROpcode, n, depth int) {
	wr := verbs.SendWR{Opcode: op, Flags: verbs.SendSignaled, Remote: d.b.remote(0), SGL: []verbs.SGE{d.a.sge(0, n)}}
	recv := verbs.RecvWR{SGL: []verbs.SGE{d.b.sge(0, n)}}
	b.SetBytes(int64(n))
	b.ReportAllocs()
	before := d.packets()
	for done := 0; b.Loop(); {
		// One iteration is one message; they are exchanged depth at a time.
		if op == verbs.OpSend {
			must.Do(b, d.qb.PostRecv(&recv))
		}
		must.Do(b, d.qa.PostSend(d.now, &wr, Refs{}))
		if done++; done%depth == 0 {
			d.exchange()
			d.complete(b, depth)
			for k := 1; op == verbs.OpSend && k > 0; {
				k, _ = d.b.cq.Poll(d.wcs[:])
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(d.packets()-before), "ns/packet")
	b.ReportMetric(float64(n)*8*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "Gb/s")
}

func BenchmarkRCWrite1MiB(b *testing.B) {
	for _, mtu := range []verbs.MTU{verbs.MTU4096, verbs.MTU1024} {
		for mode, name := range map[ICRCMode]string{ICRCChecked: "icrc", ICRCOffloaded: "offloaded"} {
			b.Run(fmt.Sprintf("mtu=%v/%s", mtu, name), func(b *testing.B) {
				newDuplex(b, mode, mtu).stream(b, verbs.OpRDMAWrite, 1<<20, 1)
			})
		}
	}
}

func BenchmarkRCRead1MiB(b *testing.B) {
	newDuplex(b, ICRCChecked, verbs.MTU4096).stream(b, verbs.OpRDMARead, 1<<20, 4)
}

func BenchmarkRCSend64B(b *testing.B) {
	newDuplex(b, ICRCChecked, verbs.MTU4096).stream(b, verbs.OpSend, 64, 32)
}

// BenchmarkRCPingPong64B measures one SEND at a time, with its ACK and both completions.
func BenchmarkRCPingPong64B(b *testing.B) {
	newDuplex(b, ICRCChecked, verbs.MTU4096).stream(b, verbs.OpSend, 64, 1)
}

// Sending and receiving do not allocate in the steady state.
func TestRCSteadyStateDoesNotAllocate(t *testing.T) {
	for _, op := range []verbs.WROpcode{verbs.OpSend, verbs.OpRDMAWrite, verbs.OpRDMARead, verbs.OpAtomicFetchAdd} {
		d := newDuplex(t, ICRCChecked, verbs.MTU1024)
		n := 5000
		if op == verbs.OpAtomicFetchAdd {
			n = 8
		}
		wr := verbs.SendWR{Opcode: op, Flags: verbs.SendSignaled, Remote: d.b.remote(0), SGL: []verbs.SGE{d.a.sge(0, n)}}
		recv := verbs.RecvWR{SGL: []verbs.SGE{d.b.sge(0, n)}}
		allocs := testing.AllocsPerRun(20, func() {
			for range 16 {
				if err := d.qb.PostRecv(&recv); err != nil && op == verbs.OpSend {
					t.Fatal(err)
				}
				must.Do(t, d.qa.PostSend(d.now, &wr, Refs{}))
			}
			d.exchange()
			d.complete(t, 16)
			for k := 1; k > 0; {
				k, _ = d.b.cq.Poll(d.wcs[:])
			}
		})
		if allocs != 0 {
			t.Errorf("%v: %v allocations in 16 requests", op, allocs)
		}
	}
}
