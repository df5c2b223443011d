package carrier

import (
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/fabrictest/fabrictest/mpi/regcache"
	"github.com/fabrictest/fabrictest/verbs"
)

// Small data is usually copied behind its header, which is cheaper than registering its
// memory. A buffer that the program uses often is registered, and the NIC gathers header
// and data.

// Reuse configures how the carrier detects buffers that are used often.
type Reuse struct {
	// Off copies all small data.
	Off bool `json:"off,omitempty"`
	// Thresholds is how often a buffer of each size must be used before registration pays.
	// By default they are measured, and in a simulated world without costs all small data
	// is copied.
	Thresholds regcache.Thresholds `json:"thresholds,omitempty"`
	// Speculation, Buckets and Frequent are fields of regcache.ReuseConfig.
	Speculation float64 `json:"speculation,omitempty"`
	Buckets     int     `json:"buckets,omitempty"`
	Frequent    float64 `json:"frequent,omitempty"`
}

// openReuse creates the table of buffer uses.
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
	cfg := &c.cfg.Reuse
	c.frequent = regcache.NewReuse(regcache.ReuseConfig{Thresholds: t, Speculation: cfg.Speculation, Buckets: cfg.Buckets, Frequent: cfg.Frequent})
	c.stats.ReuseThresholds = t
	return nil
}

// measureReuse measures the costs of registration, copy and lookup, and computes the
// thresholds.
func (c *Carrier) measureReuse() (regcache.Thresholds, error) {
	const rounds, batches = 16, 8
	from, to := make([]byte, c.cfg.PacketSize), make([]byte, c.cfg.PacketSize)
	var failed error
	timeOf := func(f func() error) time.Duration {
		least := forever // the smallest: other processes only make it longer
		for range batches {
			began := c.clock()
			for range rounds {
				failed = errors.Join(failed, f())
			}
			least = min(least, (c.clock()-began)/rounds)
		}
		return least
	}
	// A frequent buffer costs a lookup in the reuse table and one in the registration
	// cache.
	probe := regcache.NewReuse(regcache.ReuseConfig{Thresholds: regcache.Thresholds{1}})
	lookup := func() error {
		c.recordUse(probe, from)
		r, err := c.Register(from)
		if err == nil {
			c.Release(r)
		}
		return err
	}
	if err := lookup(); err != nil { // the first lookup registers the buffer
		return nil, err
	}
	lookupTime := timeOf(lookup)
	costs := regcache.Costs{
		LookUp: lookupTime,
		Copy: func(n int) time.Duration {
			return timeOf(func() error {
				copy(to[:n], from[:n])
				c.chargeCopy(n)
				return nil
			})
		},
		Register: func(n int) time.Duration {
			var all []*registered
			took := timeOf(func() error {
				m, err := c.register(from[:n])
				if err == nil {
					all = append(all, m)
				}
				return err
			})
			for _, m := range all { // not measured: it happens late, if at all
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

// clock returns CPU time in real time, and the time of the world with simulated costs.
func (c *Carrier) clock() time.Duration {
	if c.env.Costs != nil {
		return c.Now()
	}
	return time.Since(started)
}

var started = time.Now()

// isFrequent counts a use of a buffer, and reports whether to register it instead of
// copying.
func (c *Carrier) isFrequent(buf []byte) bool {
	return c.frequent != nil && c.recordUse(c.frequent, buf)
}

func addressOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// BlockingOwner is the owner of data that may block until it has its buffer back. Such data
// is copied: a gathered buffer is not reusable before the peer has the data.
type BlockingOwner interface{ IsBlocking() bool }

// gatherRegion returns a region for data that should be gathered; nil if it should be
// copied.
func (c *Carrier) gatherRegion(data []byte, owner any) *Region {
	if c.frequent == nil || owner == nil {
		return nil
	}
	if h, ok := owner.(BlockingOwner); ok && h.IsBlocking() || !c.isFrequent(data) {
		return nil
	}
	r, err := c.Register(data)
	if err != nil {
		return nil // copy it instead
	}
	return r
}

// maxBounceBuffers limits the bounce buffers of one-sided operations. Beyond it buffers are
// registered.
const maxBounceBuffers = 256

// Source returns a region to write data to a peer from: the data itself, or a bounce buffer
// with a copy if it is small and not frequent. The caller must Release it.
func (c *Carrier) Source(data []byte) (*Region, error) {
	r, err := c.localRegion(data)
	if err == nil && r.bounce != nil {
		copy(r.bounce.b, data)
		c.chargeCopy(len(data))
	}
	return r, err
}

// Sink returns a region to read data of a peer into. Data in a bounce buffer is copied to
// its destination when the read completes.
func (c *Carrier) Sink(into []byte) (*Region, error) {
	r, err := c.localRegion(into)
	if err == nil && r.bounce != nil {
		r.sink = into
	}
	return r, err
}

// localRegion registers a buffer or takes a bounce buffer for it.
func (c *Carrier) localRegion(buf []byte) (*Region, error) {
	frequent := len(buf) <= c.cfg.PacketSize && c.isFrequent(buf)
	if len(buf) > c.cfg.PacketSize || frequent || c.bounceBuffers == maxBounceBuffers {
		if frequent {
			c.stats.ZeroCopy++
		}
		return c.Register(buf)
	}
	b, err := c.sendBuffer(len(buf))
	if err != nil {
		return nil, fmt.Errorf("bounce buffer of %d bytes: %w", len(buf), err)
	}
	c.bounceBuffers++
	r := c.newRegion()
	*r = Region{mem: b.mem, off: b.off, len: len(buf), rails: len(c.rails), bounce: b}
	return r, nil
}

// gather appends the scatter/gather list of a packet.
func (pkt *packet) gather(sges []verbs.SGE, rail int) []verbs.SGE {
	sges = append(sges, pkt.buf.mem.sge(rail, pkt.buf.off, pkt.copiedLen))
	if pkt.gathered != nil {
		sges = append(sges, pkt.gathered.mem.sge(rail, pkt.gathered.off, pkt.len-pkt.copiedLen))
	}
	return sges
}
