package carrier

// pageOffset is the offset of buffers from the start of a page. It avoids 4K aliasing: CPUs
// compare only the low address bits of loads and stores, and delay copies between buffers
// of nearly equal page offset.
const pageOffset = 1088

// pool holds buffers of one size in registered memory. It grows when it is empty.
type pool struct {
	c     *Carrier
	kind  MemoryKind
	size  int
	chunk int // buffers to add when it grows
	free  []*buffer
	count int
}

// buffer is a buffer of a pool.
type buffer struct {
	pool *pool
	mem  *registered
	off  int
	b    []byte
}

func (c *Carrier) newPool(kind MemoryKind, size, chunk int) *pool {
	return &pool{c: c, kind: kind, size: size, chunk: chunk}
}

// take returns a buffer with arbitrary contents.
func (p *pool) take() (*buffer, error) {
	if len(p.free) == 0 {
		if err := p.grow(p.chunk); err != nil {
			return nil, err
		}
	}
	b := p.free[len(p.free)-1]
	p.free = p.free[:len(p.free)-1]
	return b, nil
}

func (p *pool) grow(n int) error {
	mem, err := p.c.register(make([]byte, n*p.size+pageOffset)[pageOffset:])
	if err != nil {
		return err
	}
	p.c.regions = append(p.c.regions, mem)
	p.count += n
	p.c.stats.Memory.add(p.kind, n*p.size)
	buffers := make([]buffer, n)
	for i := range buffers {
		off := (n - 1 - i) * p.size // take returns them in order of address
		buffers[i] = buffer{pool: p, mem: mem, off: off, b: mem.buf[off : off+p.size : off+p.size]}
		p.free = append(p.free, &buffers[i])
	}
	return nil
}

func (b *buffer) release() { b.pool.free = append(b.pool.free, b) }
