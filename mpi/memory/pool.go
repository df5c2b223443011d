package memory

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

// Take returns a buffer with arbitrary contents.
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
// the start of a page, against 4K aliasing.
func (p *Pool) grow(n int) error {
	block, err := p.registry.Keep(p.kind, make([]byte, n*p.size+pageOffset)[pageOffset:])
	if err != nil {
		return err
	}
	buffers := make([]Buffer, n)
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

// SendBuffer takes a buffer for a packet of n bytes from the pool of short or of long packets.
func (r *Registry) SendBuffer(n int) (*Buffer, error) {
	if n <= r.small.size {
		return r.small.Take()
	}
	return r.large.Take()
}

// WordBuffer takes an 8-byte buffer for the result of an atomic.
func (r *Registry) WordBuffer() (*Buffer, error) { return r.words.Take() }
