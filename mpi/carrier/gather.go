package carrier

import (
	"fmt"
	"time"
	"unsafe"

	"github.com/fabrictest/fabrictest/mpi/reuse"
	"github.com/fabrictest/fabrictest/verbs"
)

// Small data is mostly copied behind its header, for registering its memory costs more
// than that. Buffers that a program uses again and again are registered after all, and
// the NIC gathers header and data from two places.

// Reuse is how buffers are found that are used often.
type Reuse struct {
	// Off has all small data be copied.
	Off bool `json:"off,omitempty"`
	// Thresholds are how often a buffer must be used for registration to pay. If there
	// are none they are measured; in a simulated world, where copies cost nothing, data
	// is always copied then.
	Thresholds reuse.Thresholds `json:"thresholds,omitempty"`
}

// openReuse finds out what pays.
func (c *Carrier) openReuse() error {
	t := c.cfg.Reuse.Thresholds
	if c.cfg.Reuse.Off || t == nil && !c.env.Concurrent {
		return nil
	}
	if t == nil {
		var err error
		if t, err = c.measureReuse(); err != nil {
			return err
		}
	}
	c.frequent = reuse.New(reuse.Config{Thresholds: t})
	return nil
}

// measureReuse measures what registration, copies and look-ups cost here.
func (c *Carrier) measureReuse() (reuse.Thresholds, error) {
	const rounds = 64
	from, to := make([]byte, c.cfg.Packet), make([]byte, c.cfg.Packet)
	var failed error
	each := func(f func()) time.Duration {
		began := time.Now() // what the processor takes, whatever the world's time is
		for range rounds {
			f()
		}
		return time.Since(began) / rounds
	}
	probe := reuse.New(reuse.Config{Thresholds: reuse.Thresholds{reuse.Never}})
	costs := reuse.Costs{
		LookUp: each(func() { probe.Use(addressOf(from), len(from)) }),
		Copy:   func(n int) time.Duration { return each(func() { copy(to[:n], from[:n]) }) },
		Register: func(n int) time.Duration {
			return each(func() {
				m, err := c.register(from[:n])
				if err == nil {
					err = c.deregister(m)
				}
				if err != nil {
					failed = err
				}
			})
		},
	}
	return reuse.Measured(costs, c.cfg.Packet), failed
}

func addressOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// gathers returns the region of data that should not be copied; nil if it should.
func (c *Carrier) gathers(data []byte, owner any) *Region {
	if c.frequent == nil || owner == nil || !c.frequent.Use(addressOf(data), len(data)) {
		return nil
	}
	r, err := c.Register(data)
	if err != nil {
		return nil // it can be copied as well
	}
	return r
}

// Source makes data reachable that is to be written to a peer once: where it is, or as
// a copy if it is small and not from a buffer that is used often. Release gives it
// back.
func (c *Carrier) Source(data []byte) (*Region, error) {
	if len(data) > c.cfg.Packet || c.frequent != nil && c.frequent.Use(addressOf(data), len(data)) {
		return c.Register(data)
	}
	buf, err := c.sendPool.take()
	if err != nil {
		return nil, fmt.Errorf("a buffer for %d bytes: %w", len(data), err)
	}
	copy(buf.b, data)
	r := c.newRegion()
	*r = Region{mem: buf.mem, off: buf.off, len: len(data), rails: len(c.rails), copied: buf}
	return r, nil
}

// gather lists where the bytes of a packet are.
func (pkt *packet) gather(sges []verbs.SGE, rail int) []verbs.SGE {
	sges = append(sges, pkt.buf.mem.sge(rail, pkt.buf.off, pkt.head))
	if pkt.from != nil {
		sges = append(sges, pkt.from.mem.sge(rail, pkt.from.off, pkt.len-pkt.head))
	}
	return sges
}
