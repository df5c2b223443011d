package memory

import (
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/verbs"
)

// Region is a buffer of the program that NICs can access, or a bounce buffer in its place.
type Region struct {
	Span
	entry       *Entry[*Block] // nil for a bounce buffer, and with NoRDMA
	bounce      *Buffer
	destination []byte // of data that is read into the bounce buffer
}

// Destination is the buffer to which data that was read into a bounce buffer must be copied; nil if
// there is no bounce buffer.
func (r *Region) Destination() []byte { return r.destination }

// Register makes a buffer, which must not be empty, accessible to peers until Release.
func (r *Registry) Register(buf []byte) (*Region, error) {
	if !r.cfg.NoRDMA {
		return r.RegisterWithNICs(buf)
	}
	b := r.newBlock(buf)
	r.lastKey++
	b.key = r.lastKey
	r.exposed[b.key] = b
	return r.newRegion(Region{Span: b.All()}), nil
}

// RegisterWithNICs makes a buffer, which must not be empty, accessible to NICs until Release.
func (r *Registry) RegisterWithNICs(buf []byte) (*Region, error) {
	r.chargeLookups(1)
	e, err := r.cache.Get(buf)
	if err != nil {
		return nil, err
	}
	return r.newRegion(Region{Span: Span{e.Region, e.Offset(buf), len(buf)}, entry: e}), nil
}

// newRegion returns a region with the given fields. It reuses a released Region if there is one.
func (r *Registry) newRegion(fields Region) *Region {
	region := new(Region)
	if n := len(r.idleRegions); n > 0 {
		region = r.idleRegions[n-1]
		r.idleRegions = r.idleRegions[:n-1]
	}
	*region = fields
	return region
}

// Release ends the use of a region. A bounce buffer returns to its pool; other memory may stay
// registered in the cache.
func (r *Registry) Release(region *Region) (err error) {
	switch {
	case region.bounce != nil:
		region.bounce.Release()
		r.bounced--
	case region.entry != nil:
		err = r.cache.Release(region.entry)
	default:
		delete(r.exposed, region.block.key)
	}
	*region = Region{}
	r.idleRegions = append(r.idleRegions, region)
	return err
}

// Invalidate removes every memory region that overlaps buf from the cache, and deregisters those
// that no transfer uses. It returns ErrBusy if a transfer uses one: that region is deregistered when
// the transfer ends. The program may free or reuse buf when the method Invalidated returns true.
func (r *Registry) Invalidate(buf []byte) error {
	if len(buf) == 0 {
		return nil
	}
	if r.reuse != nil { // the next buffer at this address has its own reuse count
		r.reuse.Invalidate(addr(buf), addr(buf)+uintptr(len(buf)))
	}
	inUse, err := r.cache.Invalidate(buf)
	if err == nil && (inUse || overlaps(r.exposed, buf)) {
		err = fmt.Errorf("invalidate %d bytes: %w: a transfer is under way", len(buf), verbs.ErrBusy)
	}
	return err
}

// Invalidated reports whether all memory that overlaps buf has been deregistered, so that no peer
// can access buf. Memory that waits for its delayed deregistration counts as registered.
func (r *Registry) Invalidated(buf []byte) bool {
	return !overlaps(r.byKey, buf) && !overlaps(r.exposed, buf)
}

// overlaps reports whether one of the blocks overlaps buf.
func overlaps(blocks map[uint32]*Block, buf []byte) bool {
	from, to := addr(buf), addr(buf)+uintptr(len(buf))
	for _, b := range blocks {
		if start := addr(b.buf); start < to && start+uintptr(len(b.buf)) > from {
			return true
		}
	}
	return false
}

// maxBounced limits the bounce buffers in use. Beyond it buffers are registered.
const maxBounced = 256

// Source returns a region from which data can be written to a peer: the data itself, or a bounce
// buffer with a copy if the data is small and its buffer not used often. The caller must Release
// it.
func (r *Registry) Source(data []byte) (*Region, error) {
	region, err := r.localRegion(data)
	if err == nil && region.bounce != nil {
		copy(region.bounce.B, data)
		r.ChargeCopy(len(data))
	}
	return region, err
}

// Sink returns a region into which data of a peer can be read. If it is a bounce buffer, the caller
// must copy the data to [Region.Destination] when the read completes.
func (r *Registry) Sink(into []byte) (*Region, error) {
	region, err := r.localRegion(into)
	if err == nil && region.bounce != nil {
		region.destination = into
	}
	return region, err
}

// localRegion returns a bounce buffer in place of a small buffer that is not used often, and
// registers any other buffer. It also registers when maxBounced bounce buffers are in use. With
// NoRDMA, where registration takes no time, there are no bounce buffers.
func (r *Registry) localRegion(buf []byte) (*Region, error) {
	if r.cfg.NoRDMA {
		return r.Register(buf)
	}
	small := len(buf) <= r.cfg.PacketSize
	frequent := small && r.IsFrequent(buf)
	if !small || frequent || r.bounced == maxBounced {
		if frequent {
			r.zeroCopy++
		}
		return r.Register(buf)
	}
	b, err := r.SendBuffer(len(buf))
	if err != nil {
		return nil, fmt.Errorf("bounce buffer of %d bytes: %w", len(buf), err)
	}
	r.bounced++
	return r.newRegion(Region{Span: Span{b.block, b.off, len(buf)}, bounce: b}), nil
}

// pageOffset is the offset of buffers from the start of a page. It avoids 4K aliasing: CPUs
// compare only the low address bits of loads and stores, and delay copies between buffers
// of nearly equal page offset.
const pageOffset = 1088

// Pool holds buffers of one size in registered memory. It grows when it is empty.
type Pool struct {
	registry *Registry
	kind     Kind
	size     int
	chunk    int // buffers that are added at once
	free     []*Buffer
}

// Buffer is a buffer of a pool.
type Buffer struct {
	Span
	B    []byte // its bytes
	pool *Pool
}

// NewPool returns an empty pool of buffers of size bytes. It grows by chunk buffers at a time;
// their memory is counted in Usage under kind.
func (r *Registry) NewPool(kind Kind, size, chunk int) *Pool {
	return &Pool{registry: r, kind: kind, size: size, chunk: chunk}
}

// Take returns a buffer with arbitrary contents, which the caller returns by Buffer.Release. If the
// pool is empty it grows, which fails if memory cannot be registered.
func (p *Pool) Take() (*Buffer, error) {
	if len(p.free) == 0 {
		if err := p.grow(p.chunk); err != nil {
			return nil, err
		}
	}
	b := p.free[len(p.free)-1]
	p.free = p.free[:len(p.free)-1]
	return b, nil
}

// grow adds n buffers in one block of newly registered memory. The block starts pageOffset after
// the start of a page: copies from and to an application's buffers, which often start at a page,
// would be slow (4K aliasing).
func (p *Pool) grow(n int) error {
	block, err := p.registry.Keep(p.kind, make([]byte, n*p.size+pageOffset)[pageOffset:])
	if err != nil {
		return err
	}
	buffers := make([]Buffer, n)
	p.free = slices.Grow(p.free, n)
	for i := range buffers {
		off := (n - 1 - i) * p.size // last first: Take returns them in order of address
		buffers[i] = Buffer{Span{block, off, p.size}, block.buf[off : off+p.size : off+p.size], p}
		p.free = append(p.free, &buffers[i])
	}
	return nil
}

// Release returns a buffer to its pool.
func (b *Buffer) Release() { b.pool.free = append(b.pool.free, b) }

// Short packets have a pool of small buffers. Many can be unacknowledged at the same time,
// for example while a rank connects to a thousand peers.
const (
	smallPacket = 512
	smallChunk  = 64
	largeChunk  = 16
)

// SendBuffer takes a buffer for a packet of n bytes, at most Config.PacketSize, from the pool of
// short or of long packets: see Pool.Take.
func (r *Registry) SendBuffer(n int) (*Buffer, error) {
	if n <= r.small.size {
		return r.small.Take()
	}
	return r.large.Take()
}

// WordBuffer takes an 8-byte buffer for the result of an atomic.
func (r *Registry) WordBuffer() (*Buffer, error) { return r.words.Take() }
