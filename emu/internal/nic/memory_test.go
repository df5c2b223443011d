package nic

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// Windows and regions keep their protection domain in use. Remote write access
// needs local write access.
func TestWindowsAndRegionsNeedPD(t *testing.T) {
	b, pd := newBase(t, func(l *Limits, _ *Policy) { l.MRs = 2 })
	mem := Bytes(make([]byte, 16))
	invalid := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := b.RegMR(pd+1, mem, 0, 0)
	invalid("a region of an unknown PD", err)
	_, err = b.RegMR(pd, mem, 0, verbs.AccessRemoteWrite)
	invalid("remote write without local write access", err)
	_, err = b.RegMR(pd, mem, 0, verbs.AccessRemoteAtomic)
	invalid("remote atomics without local write access", err)
	_, err = b.RegMR(pd, mem, 1<<64-8, 0)
	invalid("a region beyond the last address", err)
	_, err = b.AllocMW(pd+1, verbs.MWType1)
	invalid("a window of an unknown PD", err)
	for _, typ := range []verbs.MWType{0, 3} {
		_, err = b.AllocMW(pd, typ)
		invalid(fmt.Sprintf("a window of type %d", typ), err)
	}
	w := must.Get(b.AllocMW(pd, verbs.MWType2))(t)
	r, err := b.RegMR(pd, mem, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = b.RegMR(pd, mem, 0, 0); !errors.Is(err, verbs.ErrNoMemory) {
		t.Errorf("a third entry of two: %v", err)
	}
	must.Do(t, b.DeregMR(r))
	if err := b.DeallocPD(pd); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("DeallocPD with a window: %v", err)
	}
	if r, err = b.RegMR(pd, mem, 0, 0); err != nil {
		t.Fatal(err)
	}
	b.DeallocMW(w)
	b.DeallocMW(w) // no effect
	if err := b.DeallocPD(pd); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("DeallocPD with a region: %v", err)
	}
	must.Do(t, b.DeregMR(r))
	if err := b.DeallocPD(pd); err != nil {
		t.Error(err)
	}
	invalid("a second DeallocPD", b.DeallocPD(pd))
}

func TestZeroLengthRegion(t *testing.T) {
	b, pd := newBase(t, nil)
	if _, err := b.RegMR(pd, Bytes(nil), 0, 0); err != nil {
		t.Error(err)
	}
}

// A region cannot be deregistered while a window is bound to it.
func TestDeregMRWithBoundWindowIsBusy(t *testing.T) {
	b, pd := newBase(t, nil)
	r := must.Get(b.RegMR(pd, Bytes(make([]byte, 16)), 0, verbs.AccessMWBind))(t)
	w := must.Get(b.AllocMW(pd, verbs.MWType1))(t)
	if err := b.Mem.Bind(w, Bind{Region: r, Addr: r.Addr, Len: 16, Access: verbs.AccessRemoteRead, Key: uint32(verbs.NextRKey(verbs.RKey(w.Key))), PD: pd}); err != nil {
		t.Fatal(err)
	}
	if err := b.DeregMR(r); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("DeregMR with a bound window: %v", err)
	}
	b.DeallocMW(w)
	if err := b.DeregMR(r); err != nil {
		t.Error(err)
	}
	if err := b.DeregMR(r); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("a second DeregMR: %v", err)
	}
}

// memory registers size bytes.
func (b *Base) memory(t testing.TB, pd PD, size int, access verbs.Access) ([]byte, *Region) {
	t.Helper()
	mem := make([]byte, size)
	r := must.Get(b.RegMR(pd, Bytes(mem), 0, access))(t)
	return mem, r
}

// sge returns the entry of n bytes of r at off.
func sge(r *Region, off, n int) verbs.SGE {
	return verbs.SGE{Addr: r.Addr + uint64(off), Length: uint32(n), LKey: verbs.LKey(r.Key)}
}

// Gather and Scatter of any range of any list, including empty entries, give the
// same result as copying the concatenated entries.
func TestGatherAndScatterMatchCopying(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	b, pd := newBase(t, nil)
	mem, r := b.memory(t, pd, 256, verbs.AccessLocalWrite)
	for range 2000 {
		for i := range mem {
			mem[i] = byte(rng.Uint32())
		}
		var sgl []verbs.SGE
		var at []int // where in mem byte i of the list is
		for start := 0; len(sgl) < 4; {
			n := rng.IntN(20)
			sgl = append(sgl, sge(r, start, n))
			for i := range n {
				at = append(at, start+i)
			}
			start += n + rng.IntN(20)
		}
		off := rng.IntN(len(at) + 1)
		n := rng.IntN(len(at) - off + 1)
		got := make([]byte, n)
		must.Do(t, b.Gather(got, sgl, pd, uint32(off)))
		want := bytes.Clone(mem)
		src := make([]byte, n)
		for i := range n {
			if got[i] != mem[at[off+i]] {
				t.Fatalf("gathered %x of %v from %d on", got, sgl, off)
			}
			src[i] = byte(rng.Uint32())
			want[at[off+i]] = src[i]
		}
		must.Do(t, b.Scatter(sgl, pd, uint32(off), src))
		if !bytes.Equal(mem, want) {
			t.Fatalf("scattered %x to %v from %d on", src, sgl, off)
		}
		if !b.Writable(sgl, pd, len(at)) {
			t.Fatalf("%v is not writable", sgl)
		}
	}
}

// Scatter writes nothing if one of the entries in the range is not writable. Other
// entries are not checked.
func TestScatterWritesAllOrNothing(t *testing.T) {
	b, pd := newBase(t, nil)
	other := must.Get(b.AllocPD())(t)
	mem, good := b.memory(t, pd, 16, verbs.AccessLocalWrite)
	_, readOnly := b.memory(t, pd, 16, 0)
	_, foreign := b.memory(t, other, 16, verbs.AccessLocalWrite)
	for name, bad := range map[string]verbs.SGE{
		"memory to be read only":   sge(readOnly, 0, 4),
		"memory of another domain": sge(foreign, 0, 4),
		"memory beyond the region": sge(good, 16, 4),
		"no key at all":            {Addr: good.Addr, Length: 4, LKey: 0xdead},
	} {
		sgl := []verbs.SGE{sge(good, 0, 4), bad}
		if err := b.Scatter(sgl, pd, 0, []byte{1, 2, 3, 4, 5}); err == nil {
			t.Errorf("Scatter to %s succeeded", name)
		}
		if !bytes.Equal(mem, make([]byte, 16)) {
			t.Errorf("%s: %x was written before it", name, mem)
		}
		if b.Writable(sgl, pd, 5) || !b.Writable(sgl, pd, 4) {
			t.Errorf("%s: writable %v, and without it %v", name, b.Writable(sgl, pd, 5), b.Writable(sgl, pd, 4))
		}
		if err := b.Scatter(sgl, pd, 0, nil); err != nil {
			t.Errorf("%s: Scatter of no bytes: %v", name, err)
		}
	}
	sgl := []verbs.SGE{sge(good, 0, 4), sge(foreign, 0, 4)}
	if err := b.Gather(make([]byte, 5), sgl, pd, 0); err == nil {
		t.Error("memory of another domain was read")
	}
	if err := b.Gather(make([]byte, 4), sgl, pd, 0); err != nil {
		t.Error(err)
	}
}

func TestGatherAndScatterDoNotAllocate(t *testing.T) {
	b, pd := newBase(t, nil)
	_, r := b.memory(t, pd, 64, verbs.AccessLocalWrite)
	sgl := []verbs.SGE{sge(r, 0, 8), sge(r, 16, 8)}
	buf := make([]byte, 12)
	if n := testing.AllocsPerRun(100, func() {
		if b.Gather(buf, sgl, pd, 2) != nil || b.Scatter(sgl, pd, 2, buf) != nil || !b.Writable(sgl, pd, 16) {
			t.Fatal("refused")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
