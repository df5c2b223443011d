package nic

import (
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/verbs"
)

// Errors of key checks.
var (
	ErrKey    = errors.New("no such key")
	ErrPD     = errors.New("key belongs to another protection domain")
	ErrBounds = errors.New("range is outside the memory the key names")
	ErrRights = errors.New("key does not grant the access")
	ErrOwner  = errors.New("window is bound to another queue pair")
	ErrFull   = errors.New("memory table is full")
	ErrInUse  = errors.New("memory windows are bound to the region")
	ErrState  = errors.New("window is not in the state the operation needs")
)

// PD identifies a protection domain.
type PD uint32

// Region is registered memory.
type Region struct {
	PD      PD
	Addr    uint64
	Len     uint64
	Access  verbs.Access
	Mem     Memory
	Key     uint32
	windows int
	invalid bool // its key was invalidated
}

// Window is a memory window.
type Window struct {
	PD     PD
	Type   verbs.MWType
	Key    uint32
	region *Region // nil while unbound
	addr   uint64
	len    uint64
	access verbs.Access
	qpn    uint32 // owner of a bound type 2 window
}

// Bound reports whether the window is bound.
func (w *Window) Bound() bool { return w.region != nil }

// Table maps keys to regions and windows. A key is a 24-bit name and an 8-bit tag.
// Without Scramble the name is the index of the entry, and the tag changes with
// every use of the index, so that old keys stay invalid.
type Table struct {
	slots []slot
	free  []uint32
	limit int
	// next is the address of the next region without a requested address.
	next uint64
	// boundType2 is the number of bound type 2 windows. UnbindQP need not search if it is 0.
	boundType2 int
	keys       keyGenerator
	Policy     Policy
	// recent has indexes of regions that find returned, by a few bits of their keys: a program that sends
	// and receives uses several regions in turn.
	recent [recentEntries]uint32
}

// recentEntries is the number of regions that are found without the map of keys.
const recentEntries = 16

type slot struct {
	region *Region
	window *Window
	name   uint32
	tag    uint8
}

const (
	keyIndexShift = 8
	// firstAddr and addrAlign place regions with gaps between them, so that an overrun
	// does not reach the next region.
	firstAddr = 0x0000_5600_0000_0000
	addrAlign = 0x1_0000
)

// MaxEntries is the maximum number of regions and windows of a table.
const MaxEntries = 1<<(32-keyIndexShift) - 1

// NewTable returns a table of at most limit regions and windows.
func NewTable(limit int) *Table {
	limit = min(limit, MaxEntries)
	// Index 0 stays empty so that key 0 is never valid.
	return &Table{slots: make([]slot, 1), limit: limit, next: firstAddr}
}

// alloc returns the index of a free entry and assigns its name, the upper 24 bits of its key. If
// keys are random, it assigns the tag, the lower 8 bits, too; otherwise the entry keeps its tag.
func (t *Table) alloc() (i uint32, err error) {
	if n := len(t.free); n > 0 {
		i = t.free[n-1]
		t.free = t.free[:n-1]
	} else {
		if len(t.slots) > t.limit {
			return 0, fmt.Errorf("%w: %d entries", ErrFull, t.limit)
		}
		i = uint32(len(t.slots))
		t.slots = append(t.slots, slot{})
	}
	if s := &t.slots[i]; t.keys.sequential() {
		s.name = i
	} else {
		s.name, s.tag = t.keys.draw(i)
	}
	return i, nil
}

func (t *Table) key(i uint32) uint32 {
	return t.slots[i].name<<keyIndexShift | uint32(t.slots[i].tag)
}

// index returns the index of the entry with this key. For an unknown key the index is that of
// another entry, or beyond the last: the caller must check it, and compare the key.
func (t *Table) index(key uint32) uint32 {
	if t.keys.sequential() {
		return key >> keyIndexShift
	}
	return t.keys.index[key>>keyIndexShift]
}

// release frees the entry of key, and changes its tag so that key stays invalid.
func (t *Table) release(key uint32) {
	i := t.index(key)
	s := &t.slots[i]
	s.region, s.window = nil, nil
	s.tag++
	t.free = append(t.free, i)
	delete(t.keys.index, key>>keyIndexShift)
}

// Register adds a region. addr is the virtual address of its first byte; zero means
// that the table chooses, unless fixed is set.
func (t *Table) Register(pd PD, mem Memory, addr uint64, fixed bool, access verbs.Access) (*Region, error) {
	i, err := t.alloc()
	if err != nil {
		return nil, err
	}
	n := mem.Len()
	if addr == 0 && !fixed {
		addr = t.next
		t.next += (n + 2*addrAlign - 1) / addrAlign * addrAlign // leaves a gap of at least addrAlign
	}
	r := &Region{PD: pd, Addr: addr, Len: n, Access: access, Mem: mem, Key: t.key(i)}
	t.slots[i].region = r
	return r, nil
}

// Deregister removes a region. It fails while windows are bound to it.
func (t *Table) Deregister(r *Region) error {
	s := &t.slots[t.index(r.Key)]
	switch {
	case s.region != r:
		return fmt.Errorf("%w: region %#x is gone already", ErrKey, r.Key)
	case r.windows > 0:
		return fmt.Errorf("%w: %d", ErrInUse, r.windows)
	}
	t.release(r.Key)
	return nil
}

// AllocWindow adds an unbound window.
func (t *Table) AllocWindow(pd PD, typ verbs.MWType) (*Window, error) {
	i, err := t.alloc()
	if err != nil {
		return nil, err
	}
	w := &Window{PD: pd, Type: typ, Key: t.key(i)}
	t.slots[i].window = w
	return w, nil
}

// FreeWindow removes a window, bound or not, and reports whether it existed.
func (t *Table) FreeWindow(w *Window) bool {
	if t.slots[t.index(w.Key)].window != w {
		return false
	}
	t.unbind(w)
	t.release(w.Key)
	return true
}

// unbind ends the binding of a window to its region, if it is bound.
func (t *Table) unbind(w *Window) {
	if w.region == nil {
		return
	}
	w.region.windows--
	w.region = nil
	if w.Type == verbs.MWType2 {
		t.boundType2--
	}
}

// find returns the region or the window with this key; nil for both if there is none.
func (t *Table) find(key uint32) (*Region, *Window) {
	recent := &t.recent[key>>keyIndexShift%recentEntries]
	if r := t.slots[*recent].region; r != nil && r.Key == key && !r.invalid {
		return r, nil
	}
	i := t.index(key)
	if int(i) >= len(t.slots) {
		return nil, nil
	}
	s := &t.slots[i]
	switch {
	case s.region != nil && s.region.Key == key && !s.region.invalid:
		*recent = i
		return s.region, nil
	case s.window != nil && s.window.Key == key:
		return nil, s.window
	}
	return nil, nil
}

// within reports whether [addr, addr+n) lies in [base, base+size).
func within(addr, n, base, size uint64) bool {
	return addr >= base && n <= size && addr-base <= size-n
}

// locate checks that n bytes at addr are in r and returns its memory and the offset of addr.
func (t *Table) locate(r *Region, addr, n uint64) (Memory, uint64, error) {
	if !within(addr, n, r.Addr, r.Len) {
		return nil, 0, ErrBounds
	}
	return r.Mem, addr - r.Addr, nil
}

// Local returns the memory of an L_Key and the offset of addr in it. It fails unless the key gives
// QPs of the protection domain pd all rights in need, for n bytes at addr.
func (t *Table) Local(key verbs.LKey, pd PD, addr, n uint64, need verbs.Access) (Memory, uint64, error) {
	r, _ := t.find(uint32(key))
	switch {
	case r == nil:
		return nil, 0, ErrKey
	case r.PD != pd:
		return nil, 0, ErrPD
	case r.Access&need != need:
		return nil, 0, ErrRights
	}
	return t.locate(r, addr, n)
}

// TargetQP is the QP that a request with an R_Key is for.
type TargetQP struct {
	PD  PD
	QPN uint32
}

// Remote returns the memory of the R_Key of a region or window and the offset of addr in it. It
// fails unless the key gives requests to QP q all rights in need, for n bytes at addr.
func (t *Table) Remote(key uint32, q TargetQP, addr, n uint64, need verbs.Access) (Memory, uint64, error) {
	r, w := t.find(key)
	switch {
	case w != nil:
		var err error
		if r, addr, err = t.throughWindow(w, q, addr, n, need); err != nil {
			return nil, 0, err
		}
	case r == nil:
		return nil, 0, ErrKey
	case r.PD != q.PD:
		return nil, 0, ErrPD
	case r.Access&need != need:
		return nil, 0, ErrRights
	}
	return t.locate(r, addr, n)
}

// throughWindow checks an access to a window and returns its region and the address in the region.
// Policy.WindowCoversRegion permits addresses outside of the window.
func (t *Table) throughWindow(w *Window, q TargetQP, addr, n uint64, need verbs.Access) (*Region, uint64, error) {
	if w.region == nil {
		return nil, 0, ErrKey
	}
	base := w.addr
	if w.access&verbs.AccessZeroBased != 0 {
		base = 0
	}
	switch {
	case w.PD != q.PD:
		return nil, 0, ErrPD
	case w.Type == verbs.MWType2 && w.qpn != q.QPN:
		return nil, 0, ErrOwner
	case w.access&need != need:
		return nil, 0, ErrRights
	case !within(addr, n, base, w.len) && !t.Policy.WindowCoversRegion:
		return nil, 0, ErrBounds
	}
	return w.region, addr - base + w.addr, nil
}

// Unbound reports whether key names a window that is not bound.
func (t *Table) Unbound(key uint32) bool {
	_, w := t.find(key)
	return w != nil && !w.Bound()
}

// Span returns the address range of the region with this key. For another key it returns a byte
// that Remote rejects, unless the key is that of a window at address 0.
func (t *Table) Span(key uint32) (addr, n uint64) {
	if r, _ := t.find(key); r != nil {
		return r.Addr, r.Len
	}
	return 0, 1
}
