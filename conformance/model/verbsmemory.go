package model

import (
	"slices"

	"github.com/fabrictest/fabrictest/verbs"
)

// VerbsRange is a range of the application's buffer, with the address that it has for the device.
type VerbsRange struct {
	Base     uint64
	Off, Len int
}

// at returns the offset in the buffer of n bytes at an address, if they are within the range.
func (r VerbsRange) at(addr uint64, n int) (off int, ok bool) {
	from := addr - r.Base
	ok = addr >= r.Base && from <= uint64(r.Len) && n <= r.Len-int(from)
	return r.Off + int(from), ok
}

// VerbsRegion is a model of a memory region.
type VerbsRegion struct {
	VerbsRange
	PD     int
	Access verbs.Access
	LKey   verbs.LKey
	RKey   verbs.RKey
}

// VerbsWindow is a model of a memory window. Region is nil while it is free.
type VerbsWindow struct {
	VerbsRange
	Type   verbs.MWType
	PD     int
	Key    verbs.RKey
	Region *VerbsRegion
	Access verbs.Access
	// QP is the queue pair that bound a window of type 2, or -1 if it is gone.
	QP int
	// Unknown: the specification leaves open whether the window is bound, because its queue pair
	// is gone or a bind has failed. Nothing can be done through it, and it can be freed.
	Unknown bool
}

// VerbsMemory is a model of the regions and windows of a device. Entries may be nil.
type VerbsMemory struct {
	Regions []*VerbsRegion
	Windows []*VerbsWindow
}

// Remote returns the offset in the buffer of n bytes that a peer of queue pair qp in domain pd
// accesses with a right, and whether the access is permitted.
func (m *VerbsMemory) Remote(qp, pd int, at verbs.Remote, n int, right verbs.Access) (off int, ok bool) {
	for _, r := range m.Regions {
		if r != nil && r.RKey == at.RKey && r.PD == pd && r.Access&right != 0 {
			return r.at(at.Addr, n)
		}
	}
	for _, w := range m.Windows {
		if w != nil && w.Key == at.RKey && w.Region != nil && !w.Unknown && w.PD == pd && w.Access&right != 0 && (w.Type == verbs.MWType1 || w.QP == qp) {
			return w.at(at.Addr, n)
		}
	}
	return 0, false
}

// MayBeValid reports whether a key is that of a window that may or may not be bound (Unknown). A
// window of type 2 whose queue pair is gone gives no access to another.
func (m *VerbsMemory) MayBeValid(key verbs.RKey) bool {
	return slices.ContainsFunc(m.Windows, func(w *VerbsWindow) bool { return w != nil && w.Unknown && w.Key == key && w.QP >= 0 })
}

// Local returns the offset in the buffer of a scatter/gather entry of domain pd, and whether the
// device can use it. write says that the device writes to it.
func (m *VerbsMemory) Local(pd int, sge verbs.SGE, write bool) (off int, ok bool) {
	for _, r := range m.Regions {
		if r != nil && r.LKey == sge.LKey && r.PD == pd && (!write || r.Access&verbs.AccessLocalWrite != 0) {
			return r.at(sge.Addr, int(sge.Length))
		}
	}
	return 0, false
}

// BoundTo returns how many windows are bound to a region, and how many may be.
func (m *VerbsMemory) BoundTo(r *VerbsRegion) (bound, maybe int) {
	for _, w := range m.Windows {
		switch {
		case w == nil || w.Region != r:
		case w.Unknown:
			maybe++
		default:
			bound++
		}
	}
	return bound, maybe
}

// VerbsBind is a bind of a window to a range of a region, with addresses of the region.
type VerbsBind struct {
	QP, PD int // the queue pair and its domain
	Region *VerbsRegion
	Addr   uint64
	Len    int
	Access verbs.Access
}

// CanBind reports whether a device must execute a bind.
func (w *VerbsWindow) CanBind(b *VerbsBind) bool {
	const changes = verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic
	_, within := b.Region.at(b.Addr, b.Len)
	switch {
	case w.PD != b.PD || b.Region.PD != b.PD, !within, b.Region.Access&verbs.AccessMWBind == 0:
		return false
	case b.Access&changes != 0 && b.Region.Access&verbs.AccessLocalWrite == 0:
		return false
	case w.Type == verbs.MWType1:
		return b.Access&verbs.AccessZeroBased == 0
	}
	return w.Region == nil && b.Len > 0
}

// Bind binds the window with a new key. A bind of type 1 to no bytes frees it.
func (w *VerbsWindow) Bind(b *VerbsBind, key verbs.RKey) {
	off, _ := b.Region.at(b.Addr, b.Len)
	*w = VerbsWindow{
		VerbsRange: VerbsRange{Base: b.Addr, Off: off, Len: b.Len}, Type: w.Type, PD: w.PD,
		Key: key, Region: b.Region, Access: b.Access, QP: b.QP,
	}
	if b.Access&verbs.AccessZeroBased != 0 {
		w.Base = 0
	}
	if b.Len == 0 {
		w.Region = nil
	}
}

// CanInvalidate returns the window whose key a request or a message of queue pair qp can
// invalidate: one of type 2 that qp has bound. It returns nil if there is none.
func (m *VerbsMemory) CanInvalidate(qp int, key verbs.RKey) *VerbsWindow {
	for _, w := range m.Windows {
		if w != nil && w.Key == key && w.Type == verbs.MWType2 && w.Region != nil && !w.Unknown && w.QP == qp {
			return w
		}
	}
	return nil
}

// QPGone notes that a queue pair is gone: the windows of type 2 that it has bound may be bound or
// not (Unknown).
func (m *VerbsMemory) QPGone(qp int) {
	for _, w := range m.Windows {
		if w != nil && w.Type == verbs.MWType2 && w.Region != nil && w.QP == qp {
			w.Unknown, w.QP = true, -1
		}
	}
}
