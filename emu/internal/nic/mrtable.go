package nic

import (
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/verbs"
)

// Why a key does not open what was asked for.
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

// MemoryDefects switches off single checks: it imitates devices that forget them. The
// zero value forgets nothing. Tags say what a field does and whose defect it is.
type MemoryDefects struct {
	IgnorePD           bool `imitates:"R15" does:"keys open memory of other domains"`
	WindowBounds       bool `imitates:"R21" does:"a window opens all of its region"`
	WindowRights       bool `imitates:"mw/6" does:"a window grants what its region does"`
	WindowOwner        bool `imitates:"mw/7" does:"a type 2 window works on every QP"`
	ForeignInvalidate  bool `imitates:"R24, irdma" does:"any QP may invalidate a type 2 window"`
	UnboundInvalidate  bool `imitates:"rc/inv/6" does:"invalidating a free window succeeds"`
	InvalidateAnything bool `imitates:"rc/inv/4" does:"the keys of regions and type 1 windows can be invalidated"`
	WrappingRange      bool `imitates:"R48" does:"address plus length may wrap around"`
	BindUnchecked      bool `imitates:"mlx5" does:"a bind may exceed its region, its rights or its domain"`
	RebindBound        bool `imitates:"mw/8" does:"a bound type 2 window may be bound again"`
	DeregBound         bool `imitates:"mw/11" does:"a region with bound windows may go, and stays reachable through them"`
	StaleKeys          bool `imitates:"acc/6" does:"closed regions stay reachable by their keys"`
	ZeroBasedIgnored   bool `imitates:"mlx5, irdma" does:"zero-based regions and windows begin at their own address"`
	NoWindowAtomics    bool `imitates:"mlx5" does:"atomics through a window are refused"`
	RightsIgnored      bool `imitates:"acc/3, acc/4, rc/read/22, rc/atm/8, rc/atm/13" does:"rights of QPs and regions are not checked"`
	RangeSlack         bool `imitates:"acc/2, rc/atm/13" does:"an access may leave its region by eight bytes"`
	MW2Refused         bool `imitates:"mlx4, mw/8" does:"type 2 windows are claimed and every bind of one fails"`
	BindDefects        bool `imitates:"mw/9, mw/10" does:"binds of no bytes open the whole region, and type 1 windows may be zero-based"`
}

// Region is registered memory.
type Region struct {
	PD      PD
	Addr    uint64
	Len     uint64
	Access  verbs.Access
	Mem     Memory
	Key     uint32
	windows int
	invalid bool // Defects.InvalidateAnything has struck
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

// Bound reports whether the window is open.
func (w *Window) Bound() bool { return w.region != nil }

// Table maps keys to memory. A key is a name and an eight-bit tag. Unless they are
// scrambled, the name is the index of the entry, and the tag changes with every use of
// the index so that an old key stays dead.
type Table struct {
	slots []slot
	free  []uint32
	limit int
	// next is where the device puts regions that ask for no address.
	next uint64
	// owned counts the windows that are bound to a QP, so that a QP without
	// any goes away without a search.
	owned   int
	names   names
	Defects MemoryDefects
	// Late, if not nil, is given every write to memory to carry out later, as a
	// device does that reports data before it has placed them.
	Late func(write func())
}

type slot struct {
	region *Region
	window *Window
	name   uint32
	tag    uint8
	stale  *Region // the region last closed here, for Defects.StaleKeys
}

const (
	nameShift = 8
	// firstAddr and addrAlign lay regions out like pages of a process, far
	// apart enough that running over the end of one never meets the next.
	firstAddr = 0x0000_5600_0000_0000
	addrAlign = 0x1_0000
)

// MaxEntries is how many regions and windows the keys of a table can tell apart.
const MaxEntries = 1<<(32-nameShift) - 1

// NewTable returns a table of at most limit regions and windows.
func NewTable(limit int) *Table {
	limit = min(limit, MaxEntries)
	// Index 0 stays empty so that key 0 is never valid.
	return &Table{slots: make([]slot, 1), limit: limit, next: firstAddr}
}

// alloc finds an entry that is free and gives it a name.
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
	switch s := &t.slots[i]; {
	case t.names.plain():
		s.name = i
	case t.names.order != KeysReused || s.name == 0:
		s.name, s.tag = t.names.draw(i)
	}
	return i, nil
}

func (t *Table) key(i uint32) uint32 {
	return t.slots[i].name<<nameShift | uint32(t.slots[i].tag)
}

// index is where the table has what key names, if it has it; else an entry that does not
// have that key.
func (t *Table) index(key uint32) uint32 {
	if t.names.plain() {
		return key >> nameShift
	}
	return t.names.at[key>>nameShift]
}

// release frees the entry of key and moves its tag on.
func (t *Table) release(key uint32) {
	i := t.index(key)
	s := &t.slots[i]
	s.region, s.window = nil, nil
	s.tag++
	t.free = append(t.free, i)
	if !t.Defects.StaleKeys && t.names.order != KeysReused {
		delete(t.names.at, key>>nameShift)
	}
}

// Register enters memory. addr is what peers call its first byte; unless fixed
// is set, zero means that the table chooses.
func (t *Table) Register(pd PD, mem Memory, addr uint64, fixed bool, access verbs.Access) (*Region, error) {
	i, err := t.alloc()
	if err != nil {
		return nil, err
	}
	n := mem.Len()
	if addr == 0 && (!fixed || t.Defects.ZeroBasedIgnored) {
		addr = t.next
		t.next += (n + 2*addrAlign - 1) / addrAlign * addrAlign
	}
	r := &Region{PD: pd, Addr: addr, Len: n, Access: access, Mem: mem, Key: t.key(i)}
	t.slots[i].region = r
	return r, nil
}

// Deregister removes a region. Windows bound to it forbid that.
func (t *Table) Deregister(r *Region) error {
	s := &t.slots[t.index(r.Key)]
	switch {
	case s.region != r:
		return fmt.Errorf("%w: region %#x is gone already", ErrKey, r.Key)
	case r.windows > 0 && !t.Defects.DeregBound:
		return fmt.Errorf("%w: %d", ErrInUse, r.windows)
	}
	s.stale = r
	t.release(r.Key)
	return nil
}

// AllocWindow makes an unbound window.
func (t *Table) AllocWindow(pd PD, typ verbs.MWType) (*Window, error) {
	i, err := t.alloc()
	if err != nil {
		return nil, err
	}
	w := &Window{PD: pd, Type: typ, Key: t.key(i)}
	t.slots[i].window = w
	return w, nil
}

// FreeWindow removes a window, bound or not, and reports whether it was there.
func (t *Table) FreeWindow(w *Window) bool {
	if t.slots[t.index(w.Key)].window != w {
		return false
	}
	t.unbind(w)
	t.release(w.Key)
	return true
}

func (t *Table) unbind(w *Window) {
	if w.region == nil {
		return
	}
	w.region.windows--
	w.region = nil
	if w.Type == verbs.MWType2 {
		t.owned--
	}
}

// named finds what key names, if its tag is the current one: a region, a
// window, or neither.
func (t *Table) named(key uint32) (*Region, *Window) {
	i := t.index(key)
	if int(i) >= len(t.slots) {
		return nil, nil
	}
	s := &t.slots[i]
	switch {
	case s.region != nil && s.region.Key == key && !s.region.invalid:
		return s.region, nil
	case s.window != nil && s.window.Key == key:
		return nil, s.window
	case t.Defects.StaleKeys && s.stale != nil && s.stale.Key == key:
		return s.stale, nil
	}
	return nil, nil
}

// within reports whether [addr, addr+n) lies in [base, base+size).
func within(addr, n, base, size uint64) bool {
	return addr >= base && n <= size && addr-base <= size-n
}

// reach returns the memory of r and the offset of addr in it, having checked
// that n bytes are there.
func (t *Table) reach(r *Region, addr, n uint64) (Memory, uint64, error) {
	switch {
	case within(addr, n, r.Addr, r.Len):
		if t.Late != nil {
			return late{r.Mem, t.Late}, addr - r.Addr, nil
		}
		return r.Mem, addr - r.Addr, nil
	case t.Defects.WrappingRange && addr+n < addr:
		return nowhere{}, 0, nil
	}
	return nil, 0, ErrBounds
}

// Local resolves a local key.
func (t *Table) Local(key verbs.LKey, pd PD, addr, n uint64, need verbs.Access) (Memory, uint64, error) {
	r, _ := t.named(uint32(key))
	switch {
	case r == nil:
		return nil, 0, ErrKey
	case r.PD != pd && !t.Defects.IgnorePD:
		return nil, 0, ErrPD
	case r.Access&need != need:
		return nil, 0, ErrRights
	}
	return t.reach(r, addr, n)
}

// Remote resolves a remote key as a packet for the given QP names it.
func (t *Table) Remote(key uint32, pd PD, qpn uint32, addr, n uint64, need verbs.Access) (Memory, uint64, error) {
	r, w := t.named(key)
	switch {
	case w != nil:
		var err error
		if r, addr, err = t.throughWindow(w, pd, qpn, addr, n, need); err != nil {
			return nil, 0, err
		}
	case r == nil:
		return nil, 0, ErrKey
	case r.PD != pd && !t.Defects.IgnorePD:
		return nil, 0, ErrPD
	case r.Access&need != need && !(t.Defects.RightsIgnored && need&^remoteAccess == 0):
		return nil, 0, ErrRights
	}
	if off := addr - r.Addr + slackLen; t.Defects.RangeSlack && within(off, n, 0, r.Len+2*slackLen) {
		return slack{r.Mem}, off, nil
	}
	return t.reach(r, addr, n)
}

// remoteAccess is what a region grants to peers.
const remoteAccess = verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic

// throughWindow checks an access against a window and returns the region
// behind it, with the address as the region knows it.
func (t *Table) throughWindow(w *Window, pd PD, qpn uint32, addr, n uint64, need verbs.Access) (*Region, uint64, error) {
	if w.region == nil {
		return nil, 0, ErrKey
	}
	access := w.access
	if t.Defects.WindowRights {
		access = w.region.Access
	}
	base := w.addr
	if w.access&verbs.AccessZeroBased != 0 && !t.Defects.ZeroBasedIgnored {
		base = 0
	}
	switch {
	case w.PD != pd && !t.Defects.IgnorePD:
		return nil, 0, ErrPD
	case w.Type == verbs.MWType2 && w.qpn != qpn && !t.Defects.WindowOwner:
		return nil, 0, ErrOwner
	case access&need != need, need&verbs.AccessRemoteAtomic != 0 && t.Defects.NoWindowAtomics:
		return nil, 0, ErrRights
	case !within(addr, n, base, w.len) && !t.Defects.WindowBounds:
		return nil, 0, ErrBounds
	}
	return w.region, addr - base + w.addr, nil
}

// DomainOf returns the domain that a local key belongs to, or otherwise if it
// names nothing.
func (t *Table) DomainOf(key verbs.LKey, otherwise PD) PD {
	if r, _ := t.named(uint32(key)); r != nil {
		return r.PD
	}
	return otherwise
}

// Unbound reports whether key names a window that is not bound.
func (t *Table) Unbound(key uint32) bool {
	_, w := t.named(key)
	return w != nil && !w.Bound()
}

// Span returns the addresses that a remote key of a region covers; nothing if
// it names no region.
func (t *Table) Span(key uint32) (addr, n uint64) {
	if r, _ := t.named(key); r != nil {
		return r.Addr, r.Len
	}
	return 0, 1 // one byte at an address that no region has: refused later
}
