package memory

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/mpi/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// PeerAccess is the access of peers to registered memory.
const PeerAccess = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic

// Domain is the protection domain of a rail, and the access that its NIC supports.
type Domain struct {
	PD     verbs.PD
	Access verbs.Access
}

// Config configures a registry.
type Config struct {
	Domains    []Domain // of all rails
	PacketSize int      // of the largest packet; larger data is never copied
	// NoRDMA says that peers access memory by packets to this rank: NICs need not know it.
	NoRDMA bool
	// OwnAddresses registers memory at its own address. Kernels require it: a region must have the
	// page offset of its memory, and siw ignores another address. Without it runs are reproducible.
	OwnAddresses bool
	CacheBytes   int // limit of the unused memory in the cache
	Now          func() time.Duration
	// Costs has the CPU time of copies and lookups, which Spend lets pass; nil in real time. The
	// device spends that of registration.
	Costs *verbs.Costs
	Spend func(what verbs.Work, n int, d time.Duration)
}

// Registry manages the registered memory of a rank.
type Registry struct {
	Usage Usage

	cfg      Config
	costs    verbs.Costs // zero in real time
	cache    *Cache[*Block]
	reuse    *ReuseTable       // nil if small data is always copied
	paysFrom int               // Stats.ReusePaysFrom
	byKey    map[uint32]*Block // by RKey on the first rail
	exposed  map[uint32]*Block // without MRs, by key
	lastKey  uint32            // of exposed
	nextAddr uint64
	kept     []*Block // of pools and rings
	retired  []retired

	large, small, words *Pool // of buffers for long and short packets, and 8-byte buffers

	idleRegions []*Region
	bounced     int    // regions in bounce buffers
	zeroCopy    uint64 // small regions without bounce buffer
}

// Gaps between blocks let accesses beyond the end of a block fail.
const (
	firstAddr = 1 << 20
	addrGap   = 4 << 10
)

// New returns a registry with no registered memory, and with empty pools of send buffers for long
// packets, short packets and 8-byte words. Memory that leaves the cache is deregistered later (see
// deregisterDelay).
func New(cfg Config) *Registry {
	const maxIdle = 1024
	r := &Registry{cfg: cfg, byKey: make(map[uint32]*Block), exposed: make(map[uint32]*Block), nextAddr: firstAddr}
	if cfg.Costs != nil {
		r.costs = *cfg.Costs
	}
	retire := func(b *Block) error { // schedules the deregistration, and resets the reuse count
		if r.reuse != nil {
			r.reuse.Reset(addr(b.buf))
		}
		r.retired = append(r.retired, retired{b, cfg.Now() + deregisterDelay})
		return nil
	}
	r.cache = NewCache(CacheConfig[*Block]{
		Register: r.register, Deregister: retire, MaxIdle: maxIdle, MaxIdleBytes: max(cfg.CacheBytes, 0),
	})
	r.large = r.NewPool(SendBuffers, cfg.PacketSize, largeChunk)
	r.small = r.NewPool(SendBuffers, min(smallPacket, cfg.PacketSize), smallChunk)
	r.words = r.NewPool(SendBuffers, 8, smallChunk)
	return r
}

// Block is memory with an MR on every rail. All MRs have the same address. Memory for packets of
// peers has none, but a key.
type Block struct {
	addr uint64
	buf  []byte
	mrs  [wire.MaxRails]verbs.MR
	key  uint32
}

// Span is a range of a block.
type Span struct {
	block *Block
	off   int
	len   int
}

// All is the whole block.
func (b *Block) All() Span { return Span{b, 0, len(b.buf)} }

// Bytes returns the memory of the span.
func (s Span) Bytes() []byte { return s.block.buf[s.off : s.off+s.len] }

// Len is the length of the span.
func (s Span) Len() int { return s.len }

// SGE returns n bytes at an offset of the span as an SGE with the LKey of a rail.
func (s Span) SGE(rail, off, n int) verbs.SGE {
	return verbs.SGE{Addr: s.block.addr + uint64(s.off+off), Length: uint32(n), LKey: s.block.mrs[rail].LKey()}
}

// Memory describes the span to peers: its address, and its RKey on every rail.
func (s Span) Memory() wire.Memory {
	m := wire.Memory{Addr: s.block.addr + uint64(s.off)}
	if s.block.mrs[0] == nil {
		m.Keys[0], m.Rails = s.block.key, 1
	}
	for _, mr := range s.block.mrs {
		if mr == nil {
			break
		}
		m.Keys[m.Rails] = uint32(mr.RKey())
		m.Rails++
	}
	return m
}

// newBlock returns a block. Unless cfg.OwnAddresses is set, addresses are assigned in sequence, which
// makes runs reproducible, with at least addrGap between two blocks.
func (r *Registry) newBlock(buf []byte) *Block {
	if r.cfg.OwnAddresses {
		return &Block{addr: uint64(addr(buf)), buf: buf}
	}
	b := &Block{addr: r.nextAddr, buf: buf}
	roundedUp := (len(buf) + addrGap - 1) &^ (addrGap - 1) // to a multiple of addrGap
	r.nextAddr += uint64(roundedUp + addrGap)
	return b
}

// register registers memory on all rails.
func (r *Registry) register(buf []byte) (b *Block, err error) {
	b = r.newBlock(buf)
	for i, d := range r.cfg.Domains {
		init := verbs.MRInit{Buf: buf, Addr: b.addr, Access: d.Access}
		b.mrs[i], err = d.PD.RegMR(init)
		if err != nil && len(r.retired) > 0 { // retired blocks may use up the NIC's resources
			if err = r.DeregisterRetired(forever); err == nil {
				b.mrs[i], err = d.PD.RegMR(init)
			}
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("register %d bytes on rail %d: %w", len(buf), i, err), r.deregister(b))
		}
	}
	r.byKey[uint32(b.mrs[0].RKey())] = b
	return b, nil
}

// Keep registers memory until Close, and counts it in Usage under kind.
func (r *Registry) Keep(kind Kind, buf []byte) (*Block, error) {
	b, err := r.register(buf)
	if err == nil {
		r.kept = append(r.kept, b)
		r.Usage.Add(kind, len(buf))
	}
	return b, err
}

// deregister closes the MRs of a block on all rails. Find no longer returns memory of the block.
func (r *Registry) deregister(b *Block) (err error) {
	if b.mrs[0] != nil {
		delete(r.byKey, uint32(b.mrs[0].RKey()))
	}
	for _, mr := range b.mrs {
		if mr != nil {
			err = errors.Join(err, mr.Close())
		}
	}
	return err
}

// deregisterDelay is how long unused memory stays registered. The network may still hold a
// duplicate read request for it, and a NIC would end the connection over an invalid key.
const deregisterDelay = 10 * time.Millisecond

// retired is memory that is deregistered later.
type retired struct {
	block *Block
	due   time.Duration // when it may be deregistered
}

// forever is later than every delay.
const forever = time.Duration(math.MaxInt64)

// DeregisterRetired deregisters the memory that has left the registration cache at least
// deregisterDelay before now.
func (r *Registry) DeregisterRetired(now time.Duration) (err error) {
	n := 0
	for n < len(r.retired) && r.retired[n].due <= now {
		err = errors.Join(err, r.deregister(r.retired[n].block))
		n++
	}
	if n > 0 {
		r.retired = slices.Delete(r.retired, 0, n)
	}
	return err
}

// Find returns n bytes of memory that a peer names by address and key, the RKey of the first rail
// unless NoRDMA is set; nil if peers may not access them.
func (r *Registry) Find(addr uint64, key uint32, n int) []byte {
	b := r.byKey[key]
	if r.cfg.NoRDMA {
		b = r.exposed[key]
	}
	if b == nil || addr < b.addr || addr-b.addr > uint64(len(b.buf)) || uint64(n) > uint64(len(b.buf))-(addr-b.addr) {
		return nil
	}
	off := int(addr - b.addr)
	return b.buf[off : off+n]
}

// Registered returns the number of registered blocks.
func (r *Registry) Registered() int { return len(r.byKey) }

// Close deregisters all memory.
func (r *Registry) Close() error {
	err := errors.Join(r.cache.Flush(), r.DeregisterRetired(forever))
	for _, b := range r.kept {
		err = errors.Join(err, r.deregister(b))
	}
	for _, key := range slices.Sorted(maps.Keys(r.byKey)) { // regions that their users have not released
		err = errors.Join(err, r.deregister(r.byKey[key]))
	}
	return err
}

// Kind is a kind of communication memory.
type Kind uint8

// The kinds of communication memory.
const (
	SendBuffers            Kind = iota // packets under way
	ConnReceiveBuffers                 // receives of connections without SRQ
	SharedReceiveBuffers               // receives of SRQs
	DatagramReceiveBuffers             // receives of datagrams
	RingBuffers                        // rings that peers write to
	SharedSegments                     // shared memory with ranks of the same host
	kinds
)

var kindNames = [kinds]string{"send buffers", "receives of connections", "shared receives", "receives of datagrams", "rings", "shared segments"}

func (k Kind) String() string { return kindNames[k] }

// Usage is the current and the largest size of each kind of memory, in bytes.
type Usage struct {
	Now [kinds]int `json:"now"`
	Max [kinds]int `json:"max"`
}

// Add counts n more bytes of a kind; fewer if n is negative.
func (u *Usage) Add(kind Kind, n int) {
	u.Now[kind] += n
	u.Max[kind] = max(u.Max[kind], u.Now[kind])
}

// charge advances the virtual time by d, the CPU time of n operations or of a copy of n bytes. In real time, where
// Config.Costs is nil, all costs are 0 and it does nothing.
func (r *Registry) charge(what verbs.Work, n int, d time.Duration) {
	if d > 0 {
		r.cfg.Spend(what, n, d)
	}
}

// ChargeCopy advances the virtual time by the CPU time of a copy of n bytes.
func (r *Registry) ChargeCopy(n int) {
	if n > 0 {
		r.charge(verbs.WorkCopy, n, r.costs.Copy.Of(n))
	}
}

// chargeLookups advances the virtual time by the CPU time of n table lookups.
func (r *Registry) chargeLookups(n uint64) {
	r.charge(verbs.WorkLookUp, int(n), r.costs.LookUp*time.Duration(n))
}
