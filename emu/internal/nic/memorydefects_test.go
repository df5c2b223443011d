package nic

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"github.com/fabrictest/fabrictest/verbs"
)

// bench is a table with a region, a bound type 2 window of its first 256 bytes
// that may be read, and a free one.
type bench struct {
	tab         *Table
	r           *Region
	bound, free *Window
}

func newBench(t *testing.T, defects MemoryDefects) *bench {
	t.Helper()
	tab := NewTable(8)
	tab.Defects = defects
	b := &bench{tab: tab, r: register(t, tab, pdA, everything)}
	b.bound, b.free = window(t, tab, verbs.MWType2), window(t, tab, verbs.MWType2)
	bind := bindOf(b.bound, b.r)
	bind.Access = verbs.AccessRemoteRead
	tab.Defects.MW2Refused = false // the bench was there before the lapse
	if err := tab.Bind(b.bound, bind); err != nil {
		t.Fatal(err)
	}
	tab.Defects = defects
	return b
}

func (b *bench) read(key uint32, pd PD, qpn uint32, addr, n uint64) error {
	_, _, err := b.tab.Remote(key, pd, qpn, addr, n, verbs.AccessRemoteRead)
	return err
}

// lapses holds, for every check that can be switched off, an access that only
// succeeds (or, for what a device refuses to do, only fails) without it.
var lapses = map[string]func(*bench) error{
	"IgnorePD":     func(b *bench) error { return b.read(b.r.Key, pdB, qpA, regionAddr, 8) },
	"WindowBounds": func(b *bench) error { return b.read(b.bound.Key, pdA, qpA, regionAddr+252, 8) },
	"WindowRights": func(b *bench) error {
		_, _, err := b.tab.Remote(b.bound.Key, pdA, qpA, regionAddr, 8, verbs.AccessRemoteWrite)
		return err
	},
	"WindowOwner":        func(b *bench) error { return b.read(b.bound.Key, pdA, qpB, regionAddr, 8) },
	"ForeignInvalidate":  func(b *bench) error { return b.tab.Invalidate(b.bound.Key, pdA, qpB) },
	"UnboundInvalidate":  func(b *bench) error { return b.tab.Invalidate(b.free.Key, pdA, qpA) },
	"InvalidateAnything": func(b *bench) error { return b.tab.Invalidate(b.r.Key, pdA, qpA) },
	"WrappingRange":      func(b *bench) error { return b.read(b.r.Key, pdA, qpA, ^uint64(3), 8) },
	"BindUnchecked": func(b *bench) error {
		bind := bindOf(b.free, b.r)
		bind.Addr += regionLen
		return b.tab.Bind(b.free, bind)
	},
	"RebindBound": func(b *bench) error { return b.tab.Bind(b.bound, bindOf(b.bound, b.r)) },
	"DeregBound":  func(b *bench) error { return b.tab.Deregister(b.r) },
	"StaleKeys": func(b *bench) error {
		b.tab.FreeWindow(b.bound)
		if err := b.tab.Deregister(b.r); err != nil {
			return err
		}
		// The slot has a new owner; the old key still means the old region.
		heir, err := b.tab.Register(pdB, Bytes(make([]byte, 1)), 1, false, everything)
		if err != nil || heir.Key == b.r.Key {
			return err
		}
		return b.read(b.r.Key, pdA, qpA, regionAddr, 8)
	},
	"ZeroBasedIgnored": func(b *bench) error {
		bind := bindOf(b.free, b.r)
		bind.Access |= verbs.AccessZeroBased
		if err := b.tab.Bind(b.free, bind); err != nil {
			return err
		}
		return b.read(b.free.Key, pdA, qpA, regionAddr, 8)
	},
	"NoWindowAtomics": func(b *bench) error {
		if err := b.tab.Bind(b.free, bindOf(b.free, b.r)); err != nil {
			return err
		}
		if _, _, err := b.tab.Remote(b.free.Key, pdA, qpA, regionAddr, 8, verbs.AccessRemoteAtomic); err == nil {
			return ErrState // it works: so the lapse is not there
		}
		return nil
	},
	"RightsIgnored": func(b *bench) error {
		b.r.Access = verbs.AccessLocalWrite
		return b.read(b.r.Key, pdA, qpA, regionAddr, 8)
	},
	"RangeSlack": func(b *bench) error { return b.read(b.r.Key, pdA, qpA, regionAddr+regionLen, 8) },
	"MW2Refused": func(b *bench) error {
		if err := b.tab.Bind(b.free, bindOf(b.free, b.r)); err == nil {
			return ErrState
		}
		return nil
	},
	"BindDefects": func(b *bench) error {
		bind := bindOf(b.free, b.r)
		bind.Len = 0
		if err := b.tab.Bind(b.free, bind); err != nil {
			return err
		}
		return b.read(b.free.Key, pdA, qpA, regionAddr+regionLen-8, 8)
	},
}

func TestEveryLapseIsSeen(t *testing.T) {
	fields := reflect.TypeFor[MemoryDefects]()
	for i := range fields.NumField() {
		name := fields.Field(i).Name
		try := lapses[name]
		if try == nil {
			t.Errorf("no access shows Defects.%s", name)
			continue
		}
		t.Run(name, func(t *testing.T) {
			if err := try(newBench(t, MemoryDefects{})); err == nil {
				t.Error("a careful table has it too")
			}
			var defects MemoryDefects
			reflect.ValueOf(&defects).Elem().Field(i).SetBool(true)
			if err := try(newBench(t, defects)); err != nil {
				t.Errorf("not seen: %v", err)
			}
		})
	}
	if len(lapses) != fields.NumField() {
		t.Errorf("%d accesses for %d fields", len(lapses), fields.NumField())
	}
}

func TestAWrongRangeCheckHarmsNobody(t *testing.T) {
	b := newBench(t, MemoryDefects{WrappingRange: true})
	before := bytes.Clone(b.r.Mem.(Bytes))
	mem, off, err := b.tab.Remote(b.r.Key, pdA, qpA, ^uint64(3), 8, verbs.AccessRemoteWrite)
	if err != nil {
		t.Fatal(err)
	}
	if err := mem.WriteAt(make([]byte, 8), off); err != nil {
		t.Error(err)
	}
	if _, err := mem.Update(off, func(uint64) uint64 { return 1 }); err != nil {
		t.Error(err)
	}
	got := make([]byte, 2)
	if err := mem.ReadAt(got, off); err != nil || got[0] != nowhereByte || got[1] != nowhereByte {
		t.Errorf("read % x, %v", got, err)
	}
	if !bytes.Equal(before, b.r.Mem.(Bytes)) {
		t.Error("the region has changed")
	}
}

// Eight bytes before and behind a region can be reached, and nothing is there; a
// ninth cannot.
func TestSlackHoldsNothing(t *testing.T) {
	b := newBench(t, MemoryDefects{RangeSlack: true})
	mem := b.r.Mem.(Bytes)
	for i := range mem {
		mem[i] = 1
	}
	ones := bytes.Clone(mem[:8])
	at := func(addr uint64) (Memory, uint64) {
		t.Helper()
		m, off, err := b.tab.Remote(b.r.Key, pdA, qpA, addr, 16, verbs.AccessRemoteWrite)
		if err != nil {
			t.Fatal(err)
		}
		return m, off
	}
	for _, c := range []struct {
		addr        uint64
		read, wrote []byte // before, and of the region afterwards
	}{
		{regionAddr - 8, append(make([]byte, 8), ones...), mem[:8]},
		{regionAddr + regionLen - 8, append(bytes.Clone(ones), make([]byte, 8)...), mem[regionLen-8:]},
	} {
		m, off := at(c.addr)
		got := make([]byte, 16)
		if err := m.ReadAt(got, off); err != nil || !bytes.Equal(got, c.read) {
			t.Errorf("read % x, %v", got, err)
		}
		if err := m.WriteAt(bytes.Repeat([]byte{7}, 16), off); err != nil || !bytes.Equal(c.wrote, bytes.Repeat([]byte{7}, 8)) {
			t.Errorf("wrote % x, %v", c.wrote, err)
		}
	}
	m, off := at(regionAddr - 8)
	if old, err := m.Update(off, func(uint64) uint64 { return ^uint64(0) }); old != 0 || err != nil || mem[0] != 7 {
		t.Errorf("a word before the region was %d, %v", old, err)
	}
	for _, addr := range []uint64{regionAddr - 9, regionAddr + regionLen - 7} {
		if err := b.read(b.r.Key, pdA, qpA, addr, 16); err == nil {
			t.Errorf("16 bytes at region%+d are reachable", int64(addr-regionAddr))
		}
	}
	if b.bound.boundTo(qpB) || !b.tab.Owns(qpA) || b.tab.Owns(qpB) {
		t.Error("windows are bound to whom they are not")
	}
}

// What is written late is what was to be written then, not what the buffer holds
// by now.
func TestLateWrites(t *testing.T) {
	b := newBench(t, MemoryDefects{})
	var writes []func()
	b.tab.Late = func(write func()) { writes = append(writes, write) }
	m, off, err := b.tab.Local(verbs.LKey(b.r.Key), pdA, regionAddr, 2, verbs.AccessLocalWrite)
	if err != nil {
		t.Fatal(err)
	}
	buf := []byte{1, 2}
	if err := m.WriteAt(buf, off); err != nil {
		t.Fatal(err)
	}
	mem := b.r.Mem.(Bytes)
	clear(buf)
	if mem[0] != 0 || len(writes) != 1 {
		t.Fatalf("% x, %d writes", mem[:2], len(writes))
	}
	writes[0]()
	if mem[0] != 1 || mem[1] != 2 {
		t.Errorf("% x", mem[:2])
	}
}

func TestADefectsTableStillKeepsItsSlotsApart(t *testing.T) {
	b := newBench(t, MemoryDefects{BindUnchecked: true, RebindBound: true, DeregBound: true, InvalidateAnything: true})
	bind := bindOf(b.free, b.r)
	bind.Key = ^uint32(0)
	if err := b.tab.Bind(b.free, bind); err == nil {
		t.Error("a window took a key beyond the table")
	}
	bind = bindOf(b.free, b.r)
	bind.Region = nil
	if err := b.tab.Bind(b.free, bind); err == nil {
		t.Error("a window was bound to nothing")
	}
	if err := b.tab.Invalidate(b.r.Key, pdB, qpA); !errors.Is(err, ErrState) {
		t.Errorf("a region of another domain was invalidated: %v", err)
	}
	if err := b.tab.Invalidate(b.r.Key, pdA, qpA); err != nil {
		t.Fatal(err)
	}
	if err := b.tab.Deregister(b.r); err != nil {
		t.Errorf("an invalidated region cannot go: %v", err)
	}
}
