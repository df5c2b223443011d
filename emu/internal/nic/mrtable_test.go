package nic

import (
	"errors"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

const (
	pdA PD = 1
	pdB PD = 2

	qpA uint32 = 0x11
	qpB uint32 = 0x12

	everything = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic | verbs.AccessMWBind

	regionAddr = 0x10000
	regionLen  = 0x1000
)

// register enters a region of regionLen bytes at regionAddr.
func register(t *testing.T, tab *Table, pd PD, access verbs.Access) *Region {
	t.Helper()
	r := must.Get(tab.Register(pd, Bytes(make([]byte, regionLen)), regionAddr, false, access))(t)
	return r
}

func TestLKeysAreLimitedToTheirRegion(t *testing.T) {
	tab := NewTable(4)
	r := register(t, tab, pdA, everything)
	for _, c := range []struct {
		name    string
		key     verbs.LKey
		pd      PD
		addr, n uint64
		need    verbs.Access
		want    error
	}{
		{"all", verbs.LKey(r.Key), pdA, regionAddr, regionLen, verbs.AccessLocalWrite, nil},
		{"the last byte", verbs.LKey(r.Key), pdA, regionAddr + regionLen - 1, 1, 0, nil},
		{"one byte before", verbs.LKey(r.Key), pdA, regionAddr - 1, 1, 0, ErrBounds},
		{"one byte behind", verbs.LKey(r.Key), pdA, regionAddr + regionLen, 1, 0, ErrBounds},
		{"over the end", verbs.LKey(r.Key), pdA, regionAddr + 1, regionLen, 0, ErrBounds},
		{"a length that wraps around", verbs.LKey(r.Key), pdA, regionAddr, ^uint64(0), 0, ErrBounds},
		{"an address that wraps around", verbs.LKey(r.Key), pdA, ^uint64(3), 8, 0, ErrBounds},
		{"another domain", verbs.LKey(r.Key), pdB, regionAddr, 1, 0, ErrPD},
		{"another tag", verbs.LKey(r.Key ^ 1), pdA, regionAddr, 1, 0, ErrKey},
		{"another index", verbs.LKey(r.Key + 1<<8), pdA, regionAddr, 1, 0, ErrKey},
		{"key 0", 0, pdA, regionAddr, 1, 0, ErrKey},
		{"the largest key", ^verbs.LKey(0), pdA, regionAddr, 1, 0, ErrKey},
	} {
		t.Run(c.name, func(t *testing.T) {
			mem, off, err := tab.Local(c.key, c.pd, c.addr, c.n, c.need)
			if !errors.Is(err, c.want) {
				t.Fatalf("Local = %v, want %v", err, c.want)
			}
			if err == nil && (off != c.addr-regionAddr || mem.Len() != regionLen) {
				t.Errorf("offset %#x in memory of %#x bytes", off, mem.Len())
			}
		})
	}
}

func TestKeysAreLimitedToAccessOfRegion(t *testing.T) {
	for _, has := range []verbs.Access{0, verbs.AccessLocalWrite, verbs.AccessRemoteRead, verbs.AccessLocalWrite | verbs.AccessRemoteWrite, everything} {
		tab := NewTable(4)
		r := register(t, tab, pdA, has)
		for _, need := range []verbs.Access{verbs.AccessRemoteRead, verbs.AccessRemoteWrite, verbs.AccessRemoteAtomic, verbs.AccessFlushGlobal} {
			_, _, err := tab.Remote(r.Key, TargetQP{pdA, qpA}, regionAddr, 8, need)
			if granted := err == nil; granted != (has&need == need) {
				t.Errorf("region with %#x, need %#x: %v", has, need, err)
			}
		}
		if _, _, err := tab.Local(verbs.LKey(r.Key), pdA, regionAddr, 8, verbs.AccessLocalWrite); (err == nil) != (has&verbs.AccessLocalWrite != 0) {
			t.Errorf("region with %#x, local write: %v", has, err)
		}
	}
}

// acc/6: A key is invalid after Deregister, even if its entry is reused.
func TestKeyIsInvalidAfterDeregister(t *testing.T) {
	tab := NewTable(1)
	old := register(t, tab, pdA, everything)
	must.Do(t, tab.Deregister(old))
	heir := register(t, tab, pdA, everything)
	if heir.Key == old.Key {
		t.Fatalf("key %#x was reused", old.Key)
	}
	if _, _, err := tab.Remote(old.Key, TargetQP{pdA, qpA}, regionAddr, 1, verbs.AccessRemoteRead); !errors.Is(err, ErrKey) {
		t.Errorf("old key: %v", err)
	}
	if _, _, err := tab.Remote(heir.Key, TargetQP{pdA, qpA}, regionAddr, 1, verbs.AccessRemoteRead); err != nil {
		t.Errorf("new key: %v", err)
	}
}

func TestDeregisterTwiceFails(t *testing.T) {
	tab := NewTable(2)
	r := register(t, tab, pdA, everything)
	must.Do(t, tab.Deregister(r))
	must.Fail(t, "second Deregister", tab.Deregister(r), ErrKey)
	// Had the second one freed the slot again, two regions would share it.
	a, b := register(t, tab, pdA, everything), register(t, tab, pdB, everything)
	if a.Key>>keyIndexShift == b.Key>>keyIndexShift {
		t.Errorf("keys %#x and %#x share a slot", a.Key, b.Key)
	}
}

func TestTableLimit(t *testing.T) {
	tab := NewTable(2)
	r := register(t, tab, pdA, everything)
	must.Get(tab.AllocWindow(pdA, verbs.MWType1))(t)
	must.Fail(t, "third entry of two, a window", must.Err(tab.AllocWindow(pdA, verbs.MWType2)), ErrFull)
	must.Fail(t, "third entry of two, a region", must.Err(tab.Register(pdA, Bytes{}, 0, false, 0)), ErrFull)
	must.Do(t, tab.Deregister(r))
	register(t, tab, pdA, everything)
}

func TestRegionsHaveGaps(t *testing.T) {
	tab := NewTable(64)
	var end uint64
	for _, n := range []int{0, 1, addrAlign - 1, addrAlign, addrAlign + 1, 1} {
		r := must.Get(tab.Register(pdA, Bytes(make([]byte, n)), 0, false, 0))(t)
		// An access beyond the end of a region does not reach the next one.
		if r.Addr%addrAlign != 0 || r.Addr < end+addrAlign-1 {
			t.Errorf("%d bytes at %#x, the last region ended at %#x", n, r.Addr, end)
		}
		end = r.Addr + r.Len
	}
}

func TestZeroBasedRegionStartsAtZero(t *testing.T) {
	tab := NewTable(1)
	r := must.Get(tab.Register(pdA, Bytes(make([]byte, 8)), 0, true, everything|verbs.AccessZeroBased))(t)
	if _, off, err := tab.Remote(r.Key, TargetQP{pdA, qpA}, 4, 4, verbs.AccessRemoteWrite); err != nil || off != 4 {
		t.Errorf("bytes 4 to 8: offset %d, %v", off, err)
	}
	if _, _, err := tab.Remote(r.Key, TargetQP{pdA, qpA}, 4, 5, verbs.AccessRemoteWrite); !errors.Is(err, ErrBounds) {
		t.Errorf("bytes 4 to 9: %v", err)
	}
}

func TestSpanFindsRegionsOnly(t *testing.T) {
	tab := NewTable(2)
	r := register(t, tab, pdB, everything)
	w, _ := tab.AllocWindow(pdB, verbs.MWType2)
	if addr, n := tab.Span(r.Key); addr != regionAddr || n != regionLen {
		t.Errorf("Span of a region = %#x, %#x", addr, n)
	}
	for _, key := range []uint32{0, w.Key, r.Key ^ 1} {
		addr, n := tab.Span(key)
		if _, _, err := tab.Remote(key, TargetQP{pdB, qpA}, addr, n, 0); err == nil {
			t.Errorf("Span of %#x = %#x, %#x, which Remote accepts", key, addr, n)
		}
	}
	if !tab.Unbound(w.Key) || tab.Unbound(r.Key) || tab.Unbound(0) {
		t.Error("Unbound is not true for an unbound window, or is true for another key")
	}
}

func TestResolvingKeyDoesNotAllocate(t *testing.T) {
	tab := NewTable(1)
	r := register(t, tab, pdA, everything)
	if n := testing.AllocsPerRun(100, func() {
		if _, _, err := tab.Remote(r.Key, TargetQP{pdA, qpA}, regionAddr, 64, verbs.AccessRemoteWrite); err != nil {
			t.Fatal(err)
		}
		if _, _, err := tab.Local(verbs.LKey(r.Key), pdA, regionAddr, 64, verbs.AccessLocalWrite); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
