package dgiwarp

import (
	"bytes"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

func addrPort(addr string, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr(addr), port)
}

// run runs one program in a world.
func run(t testing.TB, w *sim.World, f func(p *sim.Proc)) {
	t.Helper()
	w.Go("program", func(p *sim.Proc) error { f(p); return nil })
	must.Do(t, w.RunPrograms())
}

func TestRDOperations(t *testing.T) {
	w, a, b := pairInWorld(t, 2, impaired)
	x, y := newEnd(t, a, reliable), newEnd(t, b, reliable)
	const n = 20_000
	run(t, w, func(*sim.Proc) {
		to := y.source()
		fillNumbered(x.Buf[:n], 1)
		for range 3 {
			y.recv(0, 100)
		}
		x.do(to, verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: x.SGL(0, n), Remote: y.Remote(0)})
		x.do(to, verbs.SendWR{Opcode: verbs.OpRDMARead, SGL: x.SGL(n, n), Remote: y.Remote(0)})
		if !bytes.Equal(x.Buf[:n], y.Buf[:n]) || !bytes.Equal(x.Buf[:n], x.Buf[n:2*n]) {
			t.Fatal("read other data than was written")
		}
		clear(y.Buf[:8])
		y.Buf[0] = 41 // numbers in memory are little-endian
		x.do(to, verbs.SendWR{Opcode: verbs.OpAtomicFetchAdd, SGL: x.SGL(0, 8), Remote: y.Remote(0), Atomic: verbs.Atomic{CompareAdd: 1}})
		x.do(to, verbs.SendWR{Opcode: verbs.OpAtomicCmpAndSwp, SGL: x.SGL(8, 8), Remote: y.Remote(0), Atomic: verbs.Atomic{CompareAdd: 42, Swap: 7}})
		if x.Buf[0] != 41 || x.Buf[8] != 42 || y.Buf[0] != 7 {
			t.Fatalf("atomics returned %d and %d, memory has %d", x.Buf[0], x.Buf[8], y.Buf[0])
		}
		x.do(to, verbs.SendWR{Opcode: verbs.OpRDMAWriteImm, SGL: x.SGL(0, 16), Remote: y.Remote(0), Imm: 5})
		if wc := y.AwaitSuccess(); wc.Flags&verbs.WCWithImm == 0 || wc.Imm != 5 {
			t.Fatalf("immediate data: %+v", wc)
		}
		mw := must.Get(y.PD.AllocMW(verbs.MWType2))(t)
		key := verbs.NextRKey(mw.RKey())
		bind := verbs.Bind{MW: mw, RKey: key, Info: verbs.BindInfo{MR: y.MR, Addr: y.MR.Addr(), Length: 64, Access: verbs.AccessRemoteWrite}}
		y.do(x.source(), verbs.SendWR{Opcode: verbs.OpBindMW, Bind: bind})
		window := verbs.Remote{Addr: y.MR.Addr(), RKey: key}
		x.do(to, verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: x.SGL(0, 16), Remote: window})
		x.do(to, verbs.SendWR{Opcode: verbs.OpSendInv, SGL: x.SGL(0, 16), InvalidateRKey: key})
		if wc := y.AwaitSuccess(); wc.Flags&verbs.WCWithInv == 0 || wc.InvalidatedRKey != key {
			t.Fatalf("send with invalidate: %+v", wc)
		}
	})
}

// A Write-Record lists the ranges that arrived, and their data is in memory.
func TestWriteRecordListsReceivedBytes(t *testing.T) {
	w, a, b := pairInWorld(t, 9, impair.Config{Specs: []impair.Spec{{LossPPM: 100_000}}})
	x, y := newEnd(t, a, unreliable), newEnd(t, b, unreliable)
	const n, rounds = 30_000, 40
	partial := 0
	run(t, w, func(*sim.Proc) {
		for round := range uint32(rounds) {
			clear(y.Buf[:n])
			for i := range x.Buf[:n] {
				x.Buf[i] = byte(i%250) + 1
			}
			y.recv(0, 1000)
			x.do(y.source(), verbs.SendWR{Opcode: verbs.OpRDMAWriteImm, SGL: x.SGL(0, n), Remote: y.Remote(0), Imm: round})
			wc := y.AwaitSuccess()
			if wc.Imm != round {
				t.Fatalf("%+v", wc)
			}
			r, err := ParseRecord(&wc, y.Buf[wc.WRID:])
			if err != nil || r.Length != n || r.STag != uint32(y.MR.RKey()) || r.TO != y.MR.Addr() {
				t.Fatalf("record %+v, %v", r, err)
			}
			if s, err := SourceOf(&wc, y.Buf[wc.WRID:]); err != nil || s != x.source() {
				t.Fatalf("from %v, %v", s, err)
			}
			here := make([]bool, n)
			for _, g := range r.Ranges {
				for i := range g.Length {
					here[g.Offset+i] = true
				}
			}
			for i, there := range here {
				if there != (y.Buf[i] == x.Buf[i]) {
					t.Fatalf("octet %d: recorded %v, value %d", i, there, y.Buf[i])
				}
			}
			if len(r.Ranges) != 1 || r.Ranges[0].Length != n {
				partial++
			}
		}
	})
	if partial == 0 || partial == rounds || counter(b, "records_partial") != uint64(partial) {
		t.Errorf("%d of %d records were partial, %d by the counter", partial, rounds, counter(b, "records_partial"))
	}
}

func TestParseRecordErrors(t *testing.T) {
	buf := make([]byte, 100)
	buf[verbs.GRHLen+19] = 9 // more ranges than the record has
	for name, wc := range map[string]verbs.WC{
		"a send":          {Opcode: verbs.WCOpRecv, ByteLen: 60},
		"a failure":       {Opcode: verbs.WCOpRecvRDMAWithImm, Status: verbs.WCWRFlushErr},
		"too long":        {Opcode: verbs.WCOpRecvRDMAWithImm, ByteLen: 101},
		"too short":       {Opcode: verbs.WCOpRecvRDMAWithImm, ByteLen: verbs.GRHLen + 19},
		"no area":         {Opcode: verbs.WCOpRecvRDMAWithImm, ByteLen: 0},
		"too many ranges": {Opcode: verbs.WCOpRecvRDMAWithImm, ByteLen: 70},
	} {
		if r, err := ParseRecord(&wc, buf); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}

// An error of a peer stops the queue pair, unless Isolate is set. The peer receives a report in
// both cases.
func TestErrorsAreReportedToBothSides(t *testing.T) {
	for _, isolate := range []bool{false, true} {
		w, a, b := pairInWorld(t, 2, impair.Config{})
		x, y := newEnd(t, a, unreliable), newEnd(t, b, QPOptions{Isolate: isolate})
		run(t, w, func(*sim.Proc) {
			if _, ok := LastError(x.QP); ok {
				t.Fatal("LastError reports an error before the first")
			}
			x.do(y.source(), verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: x.SGL(0, 8), Remote: verbs.Remote{RKey: 0xdead}})
			if e, err := b.WaitAsync(time.Second); err != nil || e.Type != verbs.EventQPAccessErr || e.QP != y.QP {
				t.Fatalf("at the target: %+v, %v", e, err)
			}
			if e, err := a.WaitAsync(time.Second); err != nil || e.Type != verbs.EventQPReqErr || e.QP != x.QP {
				t.Fatalf("at the source: %+v, %v", e, err)
			}
			if r, ok := LastError(x.QP); !ok || r.FromQP != uint32(y.QP.QPN()) || r.From != y.source().Addr {
				t.Fatalf("report %+v, %v", r, ok)
			}
			attr, err := y.QP.Query()
			if err != nil || (attr.State == verbs.QPStateErr) == isolate {
				t.Fatalf("isolated %v: %v, %v", isolate, attr.State, err)
			}
		})
	}
}
