package nic

import (
	"fmt"

	"github.com/fabrictest/fabrictest/verbs"
)

// Bind has the parameters of a bind.
type Bind struct {
	Region *Region
	Addr   uint64
	Len    uint64
	Access verbs.Access
	Key    uint32 // new key of the window; only the tag may differ
	PD     PD     // protection domain of the QP
	QPN    uint32
}

// windowAccess has the access flags that a window may have.
const windowAccess = verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic | verbs.AccessZeroBased

// Bind binds w and gives it the key b.Key, which may differ from w.Key only in the tag, the low
// byte. Length 0 unbinds a type 1 window. If Bind fails, the window and its key are unchanged.
func (t *Table) Bind(w *Window, b Bind) error {
	i := t.index(w.Key)
	if t.slots[i].window != w || t.index(b.Key) != i {
		return fmt.Errorf("%w: %#x is not a key of window %#x", ErrKey, b.Key, w.Key)
	}
	unbinding := b.Len == 0 && w.Type == verbs.MWType1
	if !unbinding && !t.registered(b.Region) {
		return fmt.Errorf("%w: the region is gone", ErrKey)
	}
	if err := t.checkBind(w, &b); err != nil {
		return err
	}
	if w.Type == verbs.MWType2 && w.Bound() {
		return fmt.Errorf("%w: a bound type 2 window must be invalidated first", ErrState)
	}
	t.unbind(w)
	w.Key = b.Key
	t.slots[i].tag = uint8(b.Key)
	if unbinding {
		return nil
	}
	w.region, w.addr, w.len, w.access = b.Region, b.Addr, b.Len, b.Access
	w.region.windows++
	if w.Type == verbs.MWType2 {
		w.qpn = b.QPN
		t.boundType2++
	}
	return nil
}

func (t *Table) registered(r *Region) bool {
	return r != nil && t.slots[t.index(r.Key)].region == r && !r.invalid
}

// checkBind returns an error if a bind violates the rules of libibverbs and IBTA. The policy
// BindAcrossPDs permits a type 2 window on a region of another protection domain.
func (t *Table) checkBind(w *Window, b *Bind) error {
	const remoteStore = verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic
	switch {
	case w.PD != b.PD:
		return fmt.Errorf("%w: window and queue pair", ErrPD)
	case w.Type == verbs.MWType1 && b.Len == 0:
		return nil // unbinds the window; the region is ignored
	case b.Len == 0:
		return fmt.Errorf("%w: a type 2 window cannot have length 0", ErrBounds)
	case b.Region.PD != w.PD && !(t.Policy.BindAcrossPDs && w.Type == verbs.MWType2):
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

// Invalidate unbinds the type 2 window with this key, which must be bound to QP qpn. Other keys
// cannot be invalidated, unless Policy permits it: the key of a region then becomes invalid.
func (t *Table) Invalidate(key uint32, pd PD, qpn uint32) error {
	if err := t.CheckInvalidate(key, pd, qpn); err != nil {
		return err
	}
	r, w := t.find(key)
	if r != nil {
		r.invalid = true
	} else {
		t.unbind(w)
	}
	return nil
}

// CheckInvalidate returns the error that Invalidate would return: only a bound type 2 window can be
// invalidated, by the QP that bound it. The policies InvalidateAnyKey and InvalidateFromAnyQP
// imitate devices that permit more.
func (t *Table) CheckInvalidate(key uint32, pd PD, qpn uint32) error {
	r, w := t.find(key)
	permitted := func(owner PD) bool { return t.Policy.InvalidateAnyKey && owner == pd }
	switch {
	case r != nil && permitted(r.PD):
		return nil
	case r != nil:
		return fmt.Errorf("%w: a region's key cannot be invalidated", ErrState)
	case w == nil:
		return ErrKey
	case w.Type != verbs.MWType2 && !permitted(w.PD):
		return fmt.Errorf("%w: a type 1 window cannot be invalidated", ErrState)
	case w.PD != pd:
		return ErrPD
	case !w.Bound():
		return fmt.Errorf("%w: window is not bound", ErrState)
	case w.Type == verbs.MWType2 && w.qpn != qpn && !t.Policy.InvalidateFromAnyQP:
		return ErrOwner
	}
	return nil
}

// boundTo reports whether w, which may be nil, is a type 2 window that is bound to the QP.
func (w *Window) boundTo(qpn uint32) bool {
	return w != nil && w.Bound() && w.Type == verbs.MWType2 && w.qpn == qpn
}

// UnbindQP unbinds all windows of a QP that is destroyed. Only type 2 windows belong to a QP.
func (t *Table) UnbindQP(qpn uint32) {
	for i := 0; i < len(t.slots) && t.boundType2 > 0; i++ {
		if w := t.slots[i].window; w.boundTo(qpn) {
			t.unbind(w)
		}
	}
}
