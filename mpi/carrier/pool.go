package carrier

// aside is how far from the start of a page buffers are. What begins a few bytes into one
// is copied slower from or to what begins at its start: processors compare the low bits
// of addresses only when they look whether a load must wait for a store.
const aside = 1088

// pool has buffers of one size in registered memory. It grows when it is empty, and
// counts what it has.
type pool struct {
	c     *Carrier
	what  MemoryKind
	size  int
	chunk int // how many more there are when it grows
	free  []*buffer
	all   int
}

// buffer is one of a pool's.
type buffer struct {
	pool *pool
	mem  *registered
	off  int
	b    []byte // all of it
}

func (c *Carrier) newPool(what MemoryKind, size, chunk int) *pool {
	return &pool{c: c, what: what, size: size, chunk: chunk}
}

// take returns a buffer, with whatever is in it.
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
	mem, err := p.c.register(make([]byte, n*p.size+aside)[aside:])
	if err != nil {
		return err
	}
	p.c.regions = append(p.c.regions, mem)
	p.all += n
	p.c.stats.Memory.add(p.what, n*p.size)
	buffers := make([]buffer, n)
	for i := range buffers {
		off := (n - 1 - i) * p.size // so that they are taken in order
		buffers[i] = buffer{pool: p, mem: mem, off: off, b: mem.buf[off : off+p.size : off+p.size]}
		p.free = append(p.free, &buffers[i])
	}
	return nil
}

func (b *buffer) giveBack() { b.pool.free = append(b.pool.free, b) }
