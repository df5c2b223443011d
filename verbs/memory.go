package verbs

// LKey is the local key of a memory region.
type LKey uint32

// RKey is the remote key of a memory region or window.
type RKey uint32

// Access are the access flags of a memory region, a memory window or a QP.
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

	// AccessOptionalMask covers the flags that a device may ignore.
	AccessRelaxedOrdering Access = 1 << 20
	AccessOptionalMask    Access = 0x3ff << 20
)

// MRInit are the parameters of RegMR.
type MRInit struct {
	// Buf is the memory to register. The device accesses it until the region is
	// closed; the program must not read data before its completion. Exception: an
	// aligned 8-byte word at the end of an RDMA write on a connected QP is stored
	// last and atomically, so the program may poll it with an atomic load.
	Buf []byte
	// Addr is the address (IOVA) of Buf[0] in work requests. If it is 0 and Access
	// lacks AccessZeroBased, the device chooses it.
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

// MWType is the type of a memory window.
type MWType uint32

// Memory window types.
const (
	MWType1 MWType = 1
	MWType2 MWType = 2
)

// MW is a memory window: an RKey with its own access rights that work requests bind
// to a part of a memory region.
type MW interface {
	Type() MWType
	// RKey returns the current key. Binding a type 1 window changes it.
	RKey() RKey
	Close() error
}

// BindInfo is the memory that a bind gives access to.
type BindInfo struct {
	MR     MR
	Addr   uint64
	Length uint64
	Access Access
}

// NextRKey returns the key for the next bind of a type 2 window: it increments the
// low byte, which the consumer owns, as ibv_inc_rkey does.
func NextRKey(k RKey) RKey { return k&^0xff | (k+1)&0xff }

// SGE is a scatter/gather element.
type SGE struct {
	Addr   uint64
	Length uint32
	LKey   LKey
}

// SGEOf returns the SGE for the n bytes at offset off of mr.
func SGEOf(mr MR, off, n int) SGE {
	return SGE{Addr: mr.Addr() + uint64(off), Length: uint32(n), LKey: mr.LKey()}
}
