package verbs

// LKey names registered memory in a local scatter/gather entry.
type LKey uint32

// RKey names registered memory to a remote peer.
type RKey uint32

// Access says what may be done with registered memory, or through a QP.
type Access uint32

// Access flags.
const (
	AccessLocalWrite Access = 1 << iota
	AccessRemoteWrite
	AccessRemoteRead
	AccessRemoteAtomic
	AccessMWBind
	AccessZeroBased
	AccessOnDemand
	AccessHugeTLB
	AccessFlushGlobal
	AccessFlushPersistent

	// AccessRelaxedOrdering and its like are hints that a device may ignore.
	AccessRelaxedOrdering Access = 1 << 20
	AccessOptionalMask    Access = 0x3ff << 20
)

// MRInit asks for memory to be registered.
type MRInit struct {
	// Buf is the memory. The device reads and writes it until the region is
	// closed; look at what it wrote only after a completion says so. Of a write of a
	// connected peer that ends with an aligned 8-byte word, the word comes last and
	// in one step: a program may also poll for it, with an atomic load.
	Buf []byte
	// Addr is the address that work requests and peers use for Buf[0]. Zero
	// leaves the choice to the device, unless Access has AccessZeroBased.
	Addr   uint64
	Access Access
}

// MR is a registered memory region.
type MR interface {
	LKey() LKey
	RKey() RKey
	// Addr is the address of the region's first byte.
	Addr() uint64
	Len() int
	Close() error
}

// MWType tells the two kinds of memory window apart.
type MWType uint32

// Memory window types.
const (
	MWType1 MWType = 1
	MWType2 MWType = 2
)

// MW is a memory window: a part of a region, with rights of its own, that can
// be opened and closed by work requests.
type MW interface {
	Type() MWType
	// RKey is the current key. Binding a type 1 window changes it.
	RKey() RKey
	Close() error
}

// BindInfo is what a bind opens.
type BindInfo struct {
	MR     MR
	Addr   uint64
	Length uint64
	Access Access
}

// NextRKey returns the key to give a type 2 window at its next bind: the same
// window, with the consumer-owned low byte moved on.
func NextRKey(k RKey) RKey { return k&^0xff | (k+1)&0xff }

// SGE is a piece of registered memory.
type SGE struct {
	Addr   uint64
	Length uint32
	LKey   LKey
}

// SGEOf returns the entry for n bytes of mr from offset off on.
func SGEOf(mr MR, off, n int) SGE {
	return SGE{Addr: mr.Addr() + uint64(off), Length: uint32(n), LKey: mr.LKey()}
}
