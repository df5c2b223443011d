package nic

import (
	"bytes"
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/verbs"
)

// A posted request is a copy: the application may reuse its slices, and requests in
// a queue do not share memory.
func TestSlotsCopyRequests(t *testing.T) {
	const depth, maxSGE, maxInline = 5, 2, 4
	slots, places := NewSlots(depth, maxSGE, maxInline)
	if places != 8 || slots.MaxSGE() != maxSGE || slots.MaxInline() != maxInline {
		t.Fatalf("%d places, %d pieces, %d bytes", places, slots.MaxSGE(), slots.MaxInline())
	}
	ring := make([]Work, places)
	sgl, inline := make([]verbs.SGE, maxSGE), make([]byte, maxInline)
	for i := range uint32(20) {
		for k := range sgl {
			sgl[k] = verbs.SGE{Addr: uint64(i), Length: i + uint32(k)}
		}
		for k := range inline {
			inline[k] = byte(i)
		}
		wr := verbs.SendWR{
			WRID: uint64(i), Opcode: verbs.OpSend, SGL: sgl, Imm: i, InvalidateRKey: verbs.RKey(i + 1),
			Remote: verbs.Remote{Addr: uint64(i)}, Atomic: verbs.Atomic{CompareAdd: uint64(i)},
		}
		if i%2 == 1 {
			wr.Flags, wr.Inline = verbs.SendInline, inline
		}
		w := &ring[i&uint32(places-1)]
		slots.Store(w, i, &wr, false)
		for j := i - min(i, depth-1); j <= i; j++ {
			kept := &ring[j&uint32(places-1)]
			if kept.WRID != uint64(j) || kept.Imm != j || kept.Invalidate != j+1 || kept.Remote.Addr != uint64(j) || kept.Atomic.CompareAdd != uint64(j) || kept.Signaled() {
				t.Fatalf("request %d is kept as %+v", j, kept)
			}
			if j%2 == 1 {
				if !bytes.Equal(kept.Inline, bytes.Repeat([]byte{byte(j)}, maxInline)) || kept.SGL != nil || kept.Length != maxInline {
					t.Fatalf("request %d, inline, is kept as %+v", j, kept)
				}
			} else if want := []verbs.SGE{{Addr: uint64(j), Length: j}, {Addr: uint64(j), Length: j + 1}}; !slices.Equal(kept.SGL, want) || kept.Inline != nil || kept.Length != 2*j+1 {
				t.Fatalf("request %d is kept as %+v", j, kept)
			}
		}
	}
}

// A request is signaled if its flag or the queue says so. Empty inline data has no gather list.
func TestSlotsKeepFlags(t *testing.T) {
	slots, _ := NewSlots(1, 1, 1)
	for _, c := range []struct {
		flags verbs.SendFlags
		all   bool
		want  bool
	}{
		{0, false, false},
		{verbs.SendSignaled, false, true},
		{0, true, true},
		{verbs.SendSolicited, false, false},
	} {
		w := Work{Window: new(Window), Length: 9}
		slots.Store(&w, 0, &verbs.SendWR{Flags: c.flags | verbs.SendInline, SGL: make([]verbs.SGE, 1)}, c.all)
		if w.Signaled() != c.want || w.Flags&^verbs.SendSignaled != c.flags&^verbs.SendSignaled|verbs.SendInline {
			t.Errorf("%+v: flags %v", c, w.Flags)
		}
		if w.Window != nil || w.Length != 0 || w.SGL != nil || w.Inline != nil {
			t.Errorf("%+v: not cleared %+v", c, w)
		}
	}
}

func TestSlotKeepsBind(t *testing.T) {
	var w Work
	window, region := new(Window), new(Region)
	wr := verbs.SendWR{Bind: verbs.Bind{RKey: 7, Info: verbs.BindInfo{Addr: 8, Length: 9, Access: verbs.AccessRemoteRead}}}
	w.StoreBind(&wr, window, region, 3, 4)
	want := Bind{Region: region, Addr: 8, Len: 9, Access: verbs.AccessRemoteRead, Key: 7, PD: 3, QPN: 4}
	if w.Window != window || w.Bind != want {
		t.Errorf("%+v, want %+v", w.Bind, want)
	}
}

// The payload of a request is its inline data or its gather list.
func TestWorkGathersInlineDataOrSGL(t *testing.T) {
	b, pd := newBase(t, nil)
	mem, r := b.memory(t, pd, 16, 0)
	copy(mem, "0123456789abcdef")
	for name, w := range map[string]Work{
		"inline": {Inline: []byte("0123ef")},
		"listed": {SGL: []verbs.SGE{sge(r, 0, 4), sge(r, 14, 2)}},
	} {
		dst := make([]byte, 4)
		if err := w.Gather(b, pd, dst, 2); err != nil || string(dst) != "23ef" {
			t.Errorf("%s: %q, %v", name, dst, err)
		}
	}
	w := Work{SGL: []verbs.SGE{sge(r, 0, 4)}}
	if err := w.Gather(b, pd+1, make([]byte, 4), 0); err == nil {
		t.Error("memory of another PD was gathered")
	}
}

// A completion has the opcode of the operation. ByteLen is set only for successful
// READs and atomics.
func TestWorkCompletionHasOpcode(t *testing.T) {
	for op, want := range map[verbs.WROpcode]verbs.WCOpcode{
		verbs.OpSend: verbs.WCOpSend, verbs.OpSendImm: verbs.WCOpSend, verbs.OpSendInv: verbs.WCOpSend,
		verbs.OpRDMAWrite: verbs.WCOpRDMAWrite, verbs.OpRDMAWriteImm: verbs.WCOpRDMAWrite, verbs.OpRDMARead: verbs.WCOpRDMARead,
		verbs.OpAtomicCmpAndSwp: verbs.WCOpCompSwap, verbs.OpAtomicFetchAdd: verbs.WCOpFetchAdd,
		verbs.OpLocalInv: verbs.WCOpLocalInv, verbs.OpBindMW: verbs.WCOpBindMW,
		verbs.OpFlush: verbs.WCOpFlush, verbs.OpAtomicWrite: verbs.WCOpAtomicWrite,
	} {
		w := Work{WRID: 5, Op: op, Length: 8}
		wc := verbs.WC{WRID: 5, Opcode: want, QPN: 3}
		if want == verbs.WCOpRDMARead || want == verbs.WCOpCompSwap || want == verbs.WCOpFetchAdd {
			wc.ByteLen = 8
		}
		if got := w.Completion(verbs.WCSuccess, 3); got != wc {
			t.Errorf("%v completes as %+v, want %+v", op, got, wc)
		}
		wc.ByteLen, wc.Status = 0, verbs.WCRemAccessErr
		if got := w.Completion(verbs.WCRemAccessErr, 3); got != wc {
			t.Errorf("%v fails as %+v, want %+v", op, got, wc)
		}
	}
}

func TestPostingDoesNotAllocate(t *testing.T) {
	slots, _ := NewSlots(4, 2, 8)
	var w Work
	listed := verbs.SendWR{SGL: make([]verbs.SGE, 2)}
	inline := verbs.SendWR{Flags: verbs.SendInline, Inline: make([]byte, 8)}
	i := uint32(0)
	if n := testing.AllocsPerRun(100, func() {
		slots.Store(&w, i, &listed, false)
		slots.Store(&w, i+1, &inline, true)
		i += 2
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
