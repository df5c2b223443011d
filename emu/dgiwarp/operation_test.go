package dgiwarp

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/verbs"
)

func addrPort(addr string, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr(addr), port)
}

// remote is memory of an end for peers to work on.
func (e *end) remote(off int) verbs.Remote {
	return verbs.Remote{Addr: e.mr.Addr() + uint64(off), RKey: e.mr.RKey()}
}

func (e *end) sge(off, n int) []verbs.SGE { return []verbs.SGE{verbs.SGEOf(e.mr, off, n)} }

// do posts a request and waits for it to succeed.
func (e *end) do(to Source, wr verbs.SendWR) error {
	if err := e.post(to, wr); err != nil {
		return err
	}
	if _, err := e.succeed(); err != nil {
		return fmt.Errorf("%v: %w", wr.Opcode, err)
	}
	return nil
}

// run runs one program in a world.
func run(t testing.TB, w *sim.World, f func(p *sim.Proc) error) {
	t.Helper()
	w.Go("program", f)
	if err := w.RunPrograms(); err != nil {
		t.Fatal(err)
	}
}

func TestRDOperations(t *testing.T) {
	w, a, b := pairInWorld(t, 2, bad)
	x, y := mustEnd(t, a, reliable), mustEnd(t, b, reliable)
	const n = 20_000
	run(t, w, func(*sim.Proc) error {
		to := y.where()
		number(x.buf[:n], 1)
		for range 3 {
			if err := y.recv(0, 100); err != nil {
				return err
			}
		}
		if err := x.do(to, verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: x.sge(0, n), Remote: y.remote(0)}); err != nil {
			return err
		}
		if err := x.do(to, verbs.SendWR{Opcode: verbs.OpRDMARead, SGL: x.sge(n, n), Remote: y.remote(0)}); err != nil {
			return err
		}
		if !bytes.Equal(x.buf[:n], y.buf[:n]) || !bytes.Equal(x.buf[:n], x.buf[n:2*n]) {
			return errors.New("what was read back is not what was written")
		}
		clear(y.buf[:8])
		y.buf[0] = 41 // numbers in memory are little-endian
		if err := x.do(to, verbs.SendWR{Opcode: verbs.OpAtomicFetchAdd, SGL: x.sge(0, 8), Remote: y.remote(0), Atomic: verbs.Atomic{CompareAdd: 1}}); err != nil {
			return err
		}
		if err := x.do(to, verbs.SendWR{Opcode: verbs.OpAtomicCmpAndSwp, SGL: x.sge(8, 8), Remote: y.remote(0), Atomic: verbs.Atomic{CompareAdd: 42, Swap: 7}}); err != nil {
			return err
		}
		if x.buf[0] != 41 || x.buf[8] != 42 || y.buf[0] != 7 {
			return fmt.Errorf("atomics returned %d and %d, and left %d", x.buf[0], x.buf[8], y.buf[0])
		}
		if err := x.do(to, verbs.SendWR{Opcode: verbs.OpRDMAWriteImm, SGL: x.sge(0, 16), Remote: y.remote(0), Imm: 5}); err != nil {
			return err
		}
		if wc, err := y.succeed(); err != nil || wc.Flags&verbs.WCWithImm == 0 || wc.Imm != 5 {
			return fmt.Errorf("immediate data: %+v, %w", wc, err)
		}
		mw, err := y.pd.AllocMW(verbs.MWType2)
		if err != nil {
			return err
		}
		key := verbs.NextRKey(mw.RKey())
		bind := verbs.Bind{MW: mw, RKey: key, Info: verbs.BindInfo{MR: y.mr, Addr: y.mr.Addr(), Length: 64, Access: verbs.AccessRemoteWrite}}
		if err := y.do(x.where(), verbs.SendWR{Opcode: verbs.OpBindMW, Bind: bind}); err != nil {
			return err
		}
		window := verbs.Remote{Addr: y.mr.Addr(), RKey: key}
		if err := x.do(to, verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: x.sge(0, 16), Remote: window}); err != nil {
			return err
		}
		if err := x.do(to, verbs.SendWR{Opcode: verbs.OpSendInv, SGL: x.sge(0, 16), InvalidateRKey: key}); err != nil {
			return err
		}
		if wc, err := y.succeed(); err != nil || wc.Flags&verbs.WCWithInv == 0 || wc.InvalidatedRKey != key {
			return fmt.Errorf("send with invalidate: %+v, %w", wc, err)
		}
		return nil
	})
}

func TestUDRejectsOperationsWithResponses(t *testing.T) {
	w, a, b := pairInWorld(t, 2, impair.Config{})
	x, y := mustEnd(t, a, unreliable), mustEnd(t, b, unreliable)
	run(t, w, func(*sim.Proc) error {
		for _, op := range []verbs.WROpcode{verbs.OpRDMARead, verbs.OpAtomicFetchAdd, verbs.OpAtomicCmpAndSwp, verbs.OpSendInv} {
			if err := x.post(y.where(), verbs.SendWR{Opcode: op, SGL: x.sge(0, 8), Remote: y.remote(0)}); !errors.Is(err, verbs.ErrNotSupported) {
				return fmt.Errorf("%v: %w", op, err)
			}
		}
		if err := x.send(y.where(), 0, 1<<16+1); !errors.Is(err, verbs.ErrInvalid) {
			return fmt.Errorf("a message of more than 64 KB: %w", err)
		}
		return nil
	})
}

// A Write-Record lists the ranges that have arrived, and its data is there.
func TestWriteRecordListsReceivedBytes(t *testing.T) {
	w, a, b := pairInWorld(t, 9, impair.Config{Specs: []impair.Spec{{LossPPM: 100_000}}})
	x, y := mustEnd(t, a, unreliable), mustEnd(t, b, unreliable)
	const n, rounds = 30_000, 40
	partial := 0
	run(t, w, func(*sim.Proc) error {
		for round := range uint32(rounds) {
			clear(y.buf[:n])
			for i := range x.buf[:n] {
				x.buf[i] = byte(i%250) + 1
			}
			if err := y.recv(0, 1000); err != nil {
				return err
			}
			if err := x.do(y.where(), verbs.SendWR{Opcode: verbs.OpRDMAWriteImm, SGL: x.sge(0, n), Remote: y.remote(0), Imm: round}); err != nil {
				return err
			}
			wc, err := y.succeed()
			if err != nil || wc.Imm != round {
				return fmt.Errorf("%+v, %w", wc, err)
			}
			r, err := ParseRecord(&wc, y.buf[wc.WRID:])
			if err != nil || r.Length != n || r.STag != uint32(y.mr.RKey()) || r.TO != y.mr.Addr() {
				return fmt.Errorf("record %+v, %w", r, err)
			}
			if s, err := SourceOf(&wc, y.buf[wc.WRID:]); err != nil || s != x.where() {
				return fmt.Errorf("from %v, %w", s, err)
			}
			here := make([]bool, n)
			for _, g := range r.Ranges {
				for i := range g.Length {
					here[g.Offset+i] = true
				}
			}
			for i, there := range here {
				if there != (y.buf[i] == x.buf[i]) {
					return fmt.Errorf("octet %d: recorded %v, is %d", i, there, y.buf[i])
				}
			}
			if len(r.Ranges) != 1 || r.Ranges[0].Length != n {
				partial++
			}
		}
		return nil
	})
	if partial == 0 || partial == rounds || counter(b, "records_partial") != uint64(partial) {
		t.Errorf("%d of %d records were partial, %d by the counter", partial, rounds, counter(b, "records_partial"))
	}
}

func TestParseRecordErrors(t *testing.T) {
	buf := make([]byte, 100)
	buf[verbs.GRHLen+19] = 9 // ranges that are not there
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

// What a peer does wrong stops the queue pair, unless that was made to go on; the
// peer gets to know either way.
func TestErrorsAreReportedToBothSides(t *testing.T) {
	for _, isolate := range []bool{false, true} {
		w, a, b := pairInWorld(t, 2, impair.Config{})
		x, y := mustEnd(t, a, unreliable), mustEnd(t, b, QPOptions{Isolate: isolate})
		run(t, w, func(*sim.Proc) error {
			if _, ok := LastError(x.qp); ok {
				return errors.New("an error before there was one")
			}
			if err := x.do(y.where(), verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: x.sge(0, 8), Remote: verbs.Remote{RKey: 0xdead}}); err != nil {
				return err
			}
			if e, err := b.WaitAsync(time.Second); err != nil || e.Type != verbs.EventQPAccessErr || e.QP != y.qp {
				return fmt.Errorf("at the target: %+v, %w", e, err)
			}
			if e, err := a.WaitAsync(time.Second); err != nil || e.Type != verbs.EventQPReqErr || e.QP != x.qp {
				return fmt.Errorf("at the source: %+v, %w", e, err)
			}
			if r, ok := LastError(x.qp); !ok || r.FromQP != uint32(y.qp.QPN()) || r.From != y.where().Addr {
				return fmt.Errorf("report %+v, %v", r, ok)
			}
			attr, err := y.qp.Query()
			if err != nil || (attr.State == verbs.QPStateErr) == isolate {
				return fmt.Errorf("isolated %v: %v, %w", isolate, attr.State, err)
			}
			return nil
		})
	}
}
