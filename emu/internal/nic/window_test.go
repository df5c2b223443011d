package nic

import (
	"errors"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

const remoteAll = verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic

// window allocates a window of a type in pdA.
func window(t *testing.T, tab *Table, typ verbs.MWType) *Window {
	t.Helper()
	w := must.Get(tab.AllocWindow(pdA, typ))(t)
	return w
}

// bindOf is a bind of w to the first 256 bytes of r, on qpA, that every rule allows.
func bindOf(w *Window, r *Region) Bind {
	return Bind{
		Region: r, Addr: r.Addr, Len: 256, Access: remoteAll,
		Key: uint32(verbs.NextRKey(verbs.RKey(w.Key))), PD: pdA, QPN: qpA,
	}
}

func TestBindChecks(t *testing.T) {
	const type1, type2 = verbs.MWType1, verbs.MWType2
	for _, c := range []struct {
		name   string
		typ    verbs.MWType
		region verbs.Access // on top of binding
		edit   func(*Bind)
		want   error
	}{
		{"type 1", type1, everything, func(*Bind) {}, nil},
		{"type 2", type2, everything, func(*Bind) {}, nil},
		// mw/1: within the region, to the byte.
		{"one byte in front", type2, everything, func(b *Bind) { b.Addr-- }, ErrBounds},
		{"up to the end", type2, everything, func(b *Bind) { b.Addr += regionLen - 256 }, nil},
		{"one byte over the end", type2, everything, func(b *Bind) { b.Addr += regionLen - 255 }, ErrBounds},
		{"longer than the region", type1, everything, func(b *Bind) { b.Len = regionLen + 1 }, ErrBounds},
		{"a length that wraps around", type1, everything, func(b *Bind) { b.Len = ^uint64(0) }, ErrBounds},
		// mw/2, mw/3: what the region allows.
		{"a region not meant for binding", type2, everything &^ verbs.AccessMWBind, func(*Bind) {}, ErrRights},
		{"a writable window, a region that is not", type2, verbs.AccessMWBind, func(b *Bind) { b.Access = verbs.AccessRemoteWrite }, ErrRights},
		{"an atomic window, a region that is not writable", type1, verbs.AccessMWBind, func(b *Bind) { b.Access = verbs.AccessRemoteAtomic }, ErrRights},
		{"a readable window needs no right but binding", type2, verbs.AccessMWBind, func(b *Bind) { b.Access = verbs.AccessRemoteRead }, nil},
		{"local access has no meaning", type2, everything, func(b *Bind) { b.Access |= verbs.AccessLocalWrite }, ErrRights},
		// mw/4: one domain.
		{"a queue pair of another domain", type2, everything, func(b *Bind) { b.PD = pdB }, ErrPD},
		{"type 1, a queue pair of another domain", type1, everything, func(b *Bind) { b.PD = pdB }, ErrPD},
		// mw/9, mw/10.
		{"type 2 with length zero", type2, everything, func(b *Bind) { b.Len = 0 }, ErrBounds},
		{"type 1 with length zero", type1, everything, func(b *Bind) { b.Len, b.Region = 0, nil }, nil},
		{"type 1 zero-based", type1, everything, func(b *Bind) { b.Access |= verbs.AccessZeroBased }, ErrRights},
		{"type 2 zero-based", type2, everything, func(b *Bind) { b.Access |= verbs.AccessZeroBased }, nil},
		{"a zero-based region", type2, everything | verbs.AccessZeroBased, func(*Bind) {}, ErrRights},
		// Keys and objects.
		{"no region", type2, everything, func(b *Bind) { b.Region = nil }, ErrKey},
		{"another window's key", type2, everything, func(b *Bind) { b.Key += 1 << keyIndexShift }, ErrKey},
		{"the key it has", type2, everything, func(b *Bind) { b.Key-- }, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			tab := NewTable(4)
			r := register(t, tab, pdA, c.region)
			w := window(t, tab, c.typ)
			before := *w
			b := bindOf(w, r)
			c.edit(&b)
			err := tab.Bind(w, b)
			if !errors.Is(err, c.want) {
				t.Fatalf("Bind = %v, want %v", err, c.want)
			}
			if err != nil && (*w != before || r.windows != 0) {
				t.Errorf("a failed bind changed the window: %+v", *w)
			}
			if err == nil && (w.Key != b.Key || w.Bound() != (b.Len > 0)) {
				t.Errorf("bound: %v, key %#x, want %#x", w.Bound(), w.Key, b.Key)
			}
		})
	}
}

// mw/4: A region of another protection domain is rejected.
func TestBindRejectsRegionOfOtherPD(t *testing.T) {
	tab := NewTable(4)
	r := register(t, tab, pdB, everything)
	w := window(t, tab, verbs.MWType2)
	must.Fail(t, "Bind", tab.Bind(w, bindOf(w, r)), ErrPD)
}

func TestBindRejectsRemovedObjects(t *testing.T) {
	tab := NewTable(4)
	r, w := register(t, tab, pdA, everything), window(t, tab, verbs.MWType2)
	b := bindOf(w, r)
	must.Do(t, tab.Deregister(r))
	must.Fail(t, "to a region that has gone", tab.Bind(w, b), ErrKey)
	r = register(t, tab, pdA, everything)
	b = bindOf(w, r)
	if !tab.FreeWindow(w) {
		t.Fatal("FreeWindow did not find the window")
	}
	heir := window(t, tab, verbs.MWType2)
	if err := tab.Bind(w, b); !errors.Is(err, ErrKey) || heir.Bound() {
		t.Errorf("Bind of a freed window: %v", err)
	}
	if tab.FreeWindow(w) {
		t.Error("a window was freed twice")
	}
}

func TestWindowLimitsAccess(t *testing.T) {
	const read, write, atomic = verbs.AccessRemoteRead, verbs.AccessRemoteWrite, verbs.AccessRemoteAtomic
	for _, c := range []struct {
		name    string
		access  verbs.Access
		pd      PD
		qpn     uint32
		addr, n uint64
		need    verbs.Access
		want    error
	}{
		{"all of it", remoteAll, pdA, qpA, regionAddr + 64, 256, write, nil},
		// mw/5: the window's range, not the region's.
		{"one byte in front", remoteAll, pdA, qpA, regionAddr + 63, 8, read, ErrBounds},
		{"over its end", remoteAll, pdA, qpA, regionAddr + 64 + 252, 8, read, ErrBounds},
		{"behind its end", remoteAll, pdA, qpA, regionAddr + 512, 8, read, ErrBounds},
		{"an address that wraps around", remoteAll, pdA, qpA, ^uint64(3), 8, read, ErrBounds},
		// mw/6: the window's rights, not the region's.
		{"write through a readable one", read, pdA, qpA, regionAddr + 64, 8, write, ErrRights},
		{"atomic through a writable one", read | write, pdA, qpA, regionAddr + 64, 8, atomic, ErrRights},
		// mw/7, mw/4.
		{"another queue pair", remoteAll, pdA, qpB, regionAddr + 64, 8, read, ErrOwner},
		{"another domain", remoteAll, pdB, qpA, regionAddr + 64, 8, read, ErrPD},
		{"zero-based, at zero", remoteAll | verbs.AccessZeroBased, pdA, qpA, 0, 256, read, nil},
		{"zero-based, over its end", remoteAll | verbs.AccessZeroBased, pdA, qpA, 1, 256, read, ErrBounds},
		{"zero-based, by region address", remoteAll | verbs.AccessZeroBased, pdA, qpA, regionAddr + 64, 8, read, ErrBounds},
	} {
		t.Run(c.name, func(t *testing.T) {
			tab := NewTable(4)
			// The region itself gives peers no access: only the window counts.
			r := register(t, tab, pdA, verbs.AccessLocalWrite|verbs.AccessMWBind)
			w := window(t, tab, verbs.MWType2)
			b := bindOf(w, r)
			b.Addr, b.Access = regionAddr+64, c.access
			must.Do(t, tab.Bind(w, b))
			_, off, err := tab.Remote(w.Key, TargetQP{c.pd, c.qpn}, c.addr, c.n, c.need)
			if !errors.Is(err, c.want) {
				t.Fatalf("Remote = %v, want %v", err, c.want)
			}
			if err == nil && off != 64 {
				t.Errorf("offset %d in the region, want 64", off)
			}
			if _, _, err := tab.Local(verbs.LKey(w.Key), pdA, regionAddr+64, 8, 0); !errors.Is(err, ErrKey) {
				t.Errorf("as a local key: %v", err)
			}
		})
	}
}

func TestType1WindowWorksOnAllQPsOfItsPD(t *testing.T) {
	tab := NewTable(4)
	r, w := register(t, tab, pdA, everything), window(t, tab, verbs.MWType1)
	must.Do(t, tab.Bind(w, bindOf(w, r)))
	for _, qpn := range []uint32{qpA, qpB} {
		if _, _, err := tab.Remote(w.Key, TargetQP{pdA, qpn}, regionAddr, 8, verbs.AccessRemoteRead); err != nil {
			t.Errorf("on QP %#x: %v", qpn, err)
		}
	}
	first := w.Key
	if err := tab.Bind(w, bindOf(w, r)); err != nil {
		t.Fatalf("binding it again: %v", err)
	}
	if _, _, err := tab.Remote(first, TargetQP{pdA, qpA}, regionAddr, 8, verbs.AccessRemoteRead); !errors.Is(err, ErrKey) {
		t.Errorf("its former key: %v", err)
	}
	if r.windows != 1 {
		t.Errorf("the region counts %d windows", r.windows)
	}
}

// mw/8: A bound type 2 window must be invalidated before the next bind.
func TestType2WindowIsBoundOnlyWhenUnbound(t *testing.T) {
	tab := NewTable(4)
	r, w := register(t, tab, pdA, everything), window(t, tab, verbs.MWType2)
	must.Do(t, tab.Bind(w, bindOf(w, r)))
	key := w.Key
	if err := tab.Bind(w, bindOf(w, r)); !errors.Is(err, ErrState) || w.Key != key {
		t.Errorf("second bind: %v, key %#x, was %#x", err, w.Key, key)
	}
	must.Do(t, tab.Invalidate(key, pdA, qpA))
	if _, _, err := tab.Remote(key, TargetQP{pdA, qpA}, regionAddr, 8, verbs.AccessRemoteRead); !errors.Is(err, ErrKey) {
		t.Errorf("an invalidated key: %v", err)
	}
	if err := tab.Bind(w, bindOf(w, r)); err != nil {
		t.Errorf("bind after invalidation: %v", err)
	}
}

// rc/inv/4, rc/inv/5, rc/inv/6.
func TestInvalidateNeedsBoundType2WindowOfQP(t *testing.T) {
	for _, c := range []struct {
		name string
		key  func(r *Region, bound, free, type1 *Window) uint32
		pd   PD
		qpn  uint32
		want error
	}{
		{"bound", func(_ *Region, w, _, _ *Window) uint32 { return w.Key }, pdA, qpA, nil},
		{"bound to another queue pair", func(_ *Region, w, _, _ *Window) uint32 { return w.Key }, pdA, qpB, ErrOwner},
		{"of another domain", func(_ *Region, w, _, _ *Window) uint32 { return w.Key }, pdB, qpA, ErrPD},
		{"never bound", func(_ *Region, _, w, _ *Window) uint32 { return w.Key }, pdA, qpA, ErrState},
		{"type 1", func(_ *Region, _, _, w *Window) uint32 { return w.Key }, pdA, qpA, ErrState},
		{"a region", func(r *Region, _, _, _ *Window) uint32 { return r.Key }, pdA, qpA, ErrState},
		{"nothing", func(r *Region, _, _, _ *Window) uint32 { return r.Key ^ 1 }, pdA, qpA, ErrKey},
	} {
		t.Run(c.name, func(t *testing.T) {
			tab := NewTable(8)
			r := register(t, tab, pdA, everything)
			bound, free, type1 := window(t, tab, verbs.MWType2), window(t, tab, verbs.MWType2), window(t, tab, verbs.MWType1)
			for _, w := range []*Window{bound, type1} {
				must.Do(t, tab.Bind(w, bindOf(w, r)))
			}
			must.Fail(t, "Invalidate", tab.Invalidate(c.key(r, bound, free, type1), c.pd, c.qpn), c.want)
			if bound.Bound() != (c.want != nil) || !type1.Bound() {
				t.Errorf("afterwards bound: %v, type 1 bound: %v", bound.Bound(), type1.Bound())
			}
		})
	}
}

// mw/11: A region cannot be removed while windows are bound to it.
func TestDeregisterWithBoundWindowsFails(t *testing.T) {
	tab := NewTable(4)
	r := register(t, tab, pdA, everything)
	w1, w2 := window(t, tab, verbs.MWType1), window(t, tab, verbs.MWType2)
	for _, w := range []*Window{w1, w2} {
		must.Do(t, tab.Bind(w, bindOf(w, r)))
	}
	must.Fail(t, "with two windows", tab.Deregister(r), ErrInUse)
	must.Do(t, tab.Invalidate(w2.Key, pdA, qpA))
	must.Fail(t, "with one window", tab.Deregister(r), ErrInUse)
	tab.FreeWindow(w1)
	if err := tab.Deregister(r); err != nil {
		t.Errorf("without bound windows: %v", err)
	}
}

// mw/12: UnbindQP unbinds the windows of the QP and no others.
func TestUnbindQPUnbindsItsWindows(t *testing.T) {
	tab := NewTable(8)
	r := register(t, tab, pdA, everything)
	mine, others, type1 := window(t, tab, verbs.MWType2), window(t, tab, verbs.MWType2), window(t, tab, verbs.MWType1)
	for w, qpn := range map[*Window]uint32{mine: qpA, others: qpB, type1: qpA} {
		b := bindOf(w, r)
		b.QPN = qpn
		must.Do(t, tab.Bind(w, b))
	}
	tab.UnbindQP(qpA)
	if mine.Bound() || !others.Bound() || !type1.Bound() {
		t.Errorf("bound after UnbindQP(%#x): its own %v, another QP's %v, type 1 %v", qpA, mine.Bound(), others.Bound(), type1.Bound())
	}
	// A later QP of the same number has no access.
	if _, _, err := tab.Remote(mine.Key, TargetQP{pdA, qpA}, regionAddr, 8, verbs.AccessRemoteRead); !errors.Is(err, ErrKey) {
		t.Errorf("the key of an unbound window: %v", err)
	}
}
