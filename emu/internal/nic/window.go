package nic

import (
	"fmt"

	"github.com/fabrictest/fabrictest/verbs"
)

// Bind is what a bind asks for.
type Bind struct {
	Region *Region
	Addr   uint64
	Len    uint64
	Access verbs.Access
	Key    uint32 // the window's new key; only the tag may differ
	PD     PD     // of the QP that binds
	QPN    uint32
}

// windowAccess is what a window may grant.
const windowAccess = verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic | verbs.AccessZeroBased

// Bind opens w. Binding a type 1 window with length zero closes it. A bind that
// fails leaves the window as it was, key included.
func (t *Table) Bind(w *Window, b Bind) error {
	i := t.index(w.Key)
	if t.slots[i].window != w || t.index(b.Key) != i {
		return fmt.Errorf("%w: %#x is not a key of window %#x", ErrKey, b.Key, w.Key)
	}
	closing := b.Len == 0 && w.Type == verbs.MWType1
	if !closing && !t.registered(b.Region) {
		return fmt.Errorf("%w: the region is gone", ErrKey)
	}
	if err := checkBind(w, &b); err != nil {
		return err
	}
	if w.Type == verbs.MWType2 && w.Bound() {
		return fmt.Errorf("%w: a bound type 2 window must be invalidated first", ErrState)
	}
	t.unbind(w)
	w.Key = b.Key
	t.slots[i].tag = uint8(b.Key)
	if closing {
		return nil
	}
	w.region, w.addr, w.len, w.access = b.Region, b.Addr, b.Len, b.Access
	w.region.windows++
	if w.Type == verbs.MWType2 {
		w.qpn = b.QPN
		t.owned++
	}
	return nil
}

func (t *Table) registered(r *Region) bool {
	return r != nil && t.slots[t.index(r.Key)].region == r && !r.invalid
}

// checkBind holds a bind against the rules for windows.
func checkBind(w *Window, b *Bind) error {
	const remoteStore = verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic
	switch {
	case w.PD != b.PD:
		return fmt.Errorf("%w: window and queue pair", ErrPD)
	case w.Type == verbs.MWType1 && b.Len == 0:
		return nil // closes the window; the region does not matter
	case b.Len == 0:
		return fmt.Errorf("%w: a type 2 window cannot have length 0", ErrBounds)
	case b.Region.PD != w.PD:
		return fmt.Errorf("%w: window and region", ErrPD)
	case b.Region.Access&verbs.AccessMWBind == 0:
		return fmt.Errorf("%w: region was not registered for binding", ErrRights)
	case b.Access&remoteStore != 0 && b.Region.Access&verbs.AccessLocalWrite == 0:
		return fmt.Errorf("%w: a writable window needs a locally writable region", ErrRights)
	case b.Access&^windowAccess != 0:
		return fmt.Errorf("%w: flags %#x have no meaning for a window", ErrRights, uint32(b.Access&^windowAccess))
	case w.Type == verbs.MWType1 && b.Access&verbs.AccessZeroBased != 0:
		return fmt.Errorf("%w: a type 1 window cannot be zero-based", ErrRights)
	case b.Region.Access&verbs.AccessZeroBased != 0:
		return fmt.Errorf("%w: region is zero-based", ErrRights)
	case !within(b.Addr, b.Len, b.Region.Addr, b.Region.Len):
		return fmt.Errorf("%w: %d bytes at %#x", ErrBounds, b.Len, b.Addr)
	}
	return nil
}

// Invalidate closes the type 2 window that key names, for a request on QP qpn:
// a local one or a peer's. The window must be bound to that QP. Nothing else
// can be invalidated.
func (t *Table) Invalidate(key uint32, pd PD, qpn uint32) error {
	if err := t.CheckInvalidate(key, pd, qpn); err != nil {
		return err
	}
	r, w := t.named(key)
	if r != nil {
		r.invalid = true
	} else {
		t.unbind(w)
	}
	return nil
}

// CheckInvalidate says what Invalidate would, and changes nothing.
func (t *Table) CheckInvalidate(key uint32, pd PD, qpn uint32) error {
	r, w := t.named(key)
	anything := func(of PD) bool { return t.Defects.InvalidateAnything && of == pd }
	switch {
	case r != nil && anything(r.PD):
		return nil
	case r != nil:
		return fmt.Errorf("%w: a region's key cannot be invalidated", ErrState)
	case w == nil:
		return ErrKey
	case w.Type != verbs.MWType2 && !anything(w.PD):
		return fmt.Errorf("%w: a type 1 window cannot be invalidated", ErrState)
	case w.PD != pd:
		return ErrPD
	case !w.Bound():
		return fmt.Errorf("%w: window is not bound", ErrState)
	case w.Type == verbs.MWType2 && w.qpn != qpn && !t.Defects.ForeignInvalidate:
		return ErrOwner
	}
	return nil
}

func (w *Window) boundTo(qpn uint32) bool {
	return w != nil && w.Bound() && w.Type == verbs.MWType2 && w.qpn == qpn
}

// UnbindQP closes every window bound to a QP that goes away.
func (t *Table) UnbindQP(qpn uint32) {
	for i := 0; i < len(t.slots) && t.owned > 0; i++ {
		if w := t.slots[i].window; w.boundTo(qpn) {
			t.unbind(w)
		}
	}
}
