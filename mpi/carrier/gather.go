package carrier

import (
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/fabrictest/fabrictest/mpi/regcache"
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
	// are none they are measured; in a simulated world in which copies cost nothing, data
	// is always copied then.
	Thresholds regcache.Thresholds `json:"thresholds,omitempty"`
	// Speculation, Buckets and Frequent are those of regcache.ReuseConfig: what part of a
	// threshold is enough, how large the table of uses is, and when it stops to grow.
	Speculation float64 `json:"speculation,omitempty"`
	Buckets     int     `json:"buckets,omitempty"`
	Frequent    float64 `json:"frequent,omitempty"`
}

// openReuse finds out what pays.
func (c *Carrier) openReuse() error {
	t := c.cfg.Reuse.Thresholds
	if c.cfg.Reuse.Off || t == nil && !c.env.Concurrent && c.env.Costs == nil {
		return nil
	}
	if t == nil {
		var err error
		if t, err = c.measureReuse(); err != nil {
			return err
		}
	}
	own := &c.cfg.Reuse
	c.frequent = regcache.NewReuse(regcache.ReuseConfig{Thresholds: t, Speculation: own.Speculation, Buckets: own.Buckets, Frequent: own.Frequent})
	c.stats.ReuseThresholds = t
	return nil
}

// measureReuse measures what registration, copies and look-ups cost here.
func (c *Carrier) measureReuse() (regcache.Thresholds, error) {
	const rounds, batches = 16, 8
	from, to := make([]byte, c.cfg.PacketSize), make([]byte, c.cfg.PacketSize)
	var failed error
	each := func(f func() error) time.Duration {
		least := forever // whoever else has the processor makes things take longer, never shorter
		for range batches {
			began := c.clock()
			for range rounds {
				failed = errors.Join(failed, f())
			}
			least = min(least, (c.clock()-began)/rounds)
		}
		return least
	}
	// A look-up is one in the table, and one in the cache behind it: whoever is frequent
	// pays for both.
	probe := regcache.NewReuse(regcache.ReuseConfig{Thresholds: regcache.Thresholds{1}})
	look := func() error {
		c.lookUp(probe, from)
		r, err := c.Register(from)
		if err == nil {
			c.Release(r)
		}
		return err
	}
	if err := look(); err != nil { // the first one finds nothing, and registers
		return nil, err
	}
	lookUp := each(look)
	costs := regcache.Costs{
		LookUp: lookUp,
		Copy: func(n int) time.Duration {
			return each(func() error {
				copy(to[:n], from[:n])
				c.copied(n)
				return nil
			})
		},
		Register: func(n int) time.Duration {
			var all []*registered
			took := each(func() error {
				m, err := c.register(from[:n])
				if err == nil {
					all = append(all, m)
				}
				return err
			})
			for _, m := range all { // which happens late, if ever
				failed = errors.Join(failed, c.deregister(m))
			}
			return took
		},
	}
	t := regcache.ComputeThresholds(costs, c.cfg.PacketSize)
	failed = errors.Join(failed, c.Invalidate(from))
	c.cache.Stats = regcache.Stats{}
	return t, failed
}

// clock is what costs are measured by: what the processor takes, or the time of a world
// in which it is said what it takes.
func (c *Carrier) clock() time.Duration {
	if c.env.Costs != nil {
		return c.Now()
	}
	return time.Since(started)
}

var started = time.Now()

// uses counts a use of a buffer, and reports whether it should not be copied.
func (c *Carrier) uses(buf []byte) bool {
	return c.frequent != nil && c.lookUp(c.frequent, buf)
}

func addressOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// BlockingOwner is the owner of data that waits for it alone. Data that is not copied is its
// owner's again only when the peer has it, which takes longer than a copy.
type BlockingOwner interface{ IsBlocking() bool }

// gathers returns the region of data that should not be copied; nil if it should.
func (c *Carrier) gathers(data []byte, owner any) *Region {
	if c.frequent == nil || owner == nil {
		return nil
	}
	if h, ok := owner.(BlockingOwner); ok && h.IsBlocking() || !c.uses(data) {
		return nil
	}
	r, err := c.Register(data)
	if err != nil {
		return nil // it can be copied as well
	}
	return r
}

// maxCopies is how many small buffers of one-sided operations are copies at a time. A
// program that begins more than that before it ends its epoch has the rest registered.
const maxCopies = 256

// Source makes data reachable that is to be written to a peer: where it is, or as a copy
// if it is small and not from a buffer that is used often. Release gives it back.
func (c *Carrier) Source(data []byte) (*Region, error) {
	r, err := c.near(data)
	if err == nil && r.copied != nil {
		copy(r.copied.b, data)
		c.copied(len(data))
	}
	return r, err
}

// Sink does so with a buffer that data of a peer's is to be read into. From a copy it is
// put where it belongs when it is there.
func (c *Carrier) Sink(into []byte) (*Region, error) {
	r, err := c.near(into)
	if err == nil && r.copied != nil {
		r.sink = into
	}
	return r, err
}

// near returns a region of a buffer itself, or of another that is there already.
func (c *Carrier) near(buf []byte) (*Region, error) {
	often := len(buf) <= c.cfg.PacketSize && c.uses(buf)
	if len(buf) > c.cfg.PacketSize || often || c.copies == maxCopies {
		if often {
			c.stats.ZeroCopy++
		}
		return c.Register(buf)
	}
	b, err := c.sendBuffer(len(buf))
	if err != nil {
		return nil, fmt.Errorf("a buffer for %d bytes: %w", len(buf), err)
	}
	c.copies++
	r := c.newRegion()
	*r = Region{mem: b.mem, off: b.off, len: len(buf), rails: len(c.rails), copied: b}
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
