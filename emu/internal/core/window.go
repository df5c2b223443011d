package core

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

// Bind opens w. Binding a type 1 window with length zero closes it.
func (t *Table) Bind(w *Window, b Bind) error {
	if !t.Lax.BindUnchecked {
		if err := t.checkBind(w, b); err != nil {
			return err
		}
	}
	if w.Type == verbs.MWType2 && w.Bound() && !t.Lax.RebindBound {
		return fmt.Errorf("%w: a bound type 2 window must be invalidated first", ErrState)
	}
	w.unbind()
	w.Key = b.Key
	t.slots[b.Key>>indexShift].tag = uint8(b.Key)
	if b.Len == 0 {
		return nil
	}
	w.region, w.addr, w.len, w.access = b.Region, b.Addr, b.Len, b.Access
	w.region.windows++
	if w.Type == verbs.MWType2 {
		w.qpn = b.QPN
	}
	return nil
}

func (t *Table) checkBind(w *Window, b Bind) error {
	const remoteStore = verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic
	switch {
	case b.Key>>indexShift != w.Key>>indexShift:
		return fmt.Errorf("%w: %#x is not a key of window %#x", ErrKey, b.Key, w.Key)
	case w.PD != b.PD:
		return ErrPD
	case w.Type == verbs.MWType1 && b.Len == 0:
		return nil // closes the window; the region does not matter
	case b.Len == 0:
		return fmt.Errorf("%w: a type 2 window cannot have length 0", ErrBounds)
	case b.Region == nil || t.slots[b.Region.Key>>indexShift].region != b.Region:
		return ErrKey
	case b.Region.PD != w.PD:
		return ErrPD
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
	case !t.within(b.Addr, b.Len, b.Region.Addr, b.Region.Len):
		return ErrBounds
	}
	return nil
}

// Invalidate closes the type 2 window that key names. Nothing else can be
// invalidated; remote says whether a peer asks through QP qpn, which must then
// be the window's own.
func (t *Table) Invalidate(key uint32, pd PD, qpn uint32, remote bool) error {
	s := t.lookup(key)
	switch {
	case s == nil:
		return ErrKey
	case s.window == nil && t.Lax.InvalidateAnything:
		s.stale = s.region
		t.release(key)
		return nil
	case s.window == nil:
		return fmt.Errorf("%w: a region's key cannot be invalidated", ErrState)
	}
	w := s.window
	switch {
	case w.Type != verbs.MWType2 && !t.Lax.InvalidateAnything:
		return fmt.Errorf("%w: a type 1 window cannot be invalidated", ErrState)
	case w.PD != pd && !t.Lax.IgnorePD:
		return ErrPD
	case !w.Bound() && t.Lax.UnboundInvalidate:
		return nil
	case !w.Bound():
		return fmt.Errorf("%w: window is not bound", ErrState)
	case remote && w.qpn != qpn && !t.Lax.ForeignInvalidate:
		return ErrOwner
	}
	w.unbind()
	return nil
}

// UnbindQP closes every window bound to a QP that goes away.
func (t *Table) UnbindQP(qpn uint32) {
	for i := range t.slots {
		if w := t.slots[i].window; w != nil && w.Bound() && w.Type == verbs.MWType2 && w.qpn == qpn {
			w.unbind()
		}
	}
}
