package memory

import (
	"errors"
	"time"
)

// Small data is usually copied behind its header, which is cheaper than registering its
// memory. A buffer that the program uses often is registered instead.

// Reuse configures how buffers that are used often are detected.
type Reuse struct {
	// Off copies all small data.
	Off bool `json:"off,omitempty"`
	// Thresholds is how often a buffer of each size must be used before registration pays.
	// By default they are measured, and in a simulated world without costs all small data
	// is copied.
	Thresholds Thresholds `json:"thresholds,omitempty"`
	// Speculation, Buckets and Frequent are fields of ReuseConfig.
	Speculation float64 `json:"speculation,omitempty"`
	Buckets     int     `json:"buckets,omitempty"`
	Frequent    float64 `json:"frequent,omitempty"`
}

// TrackReuse starts to count the uses of small buffers. It measures the thresholds if the
// configuration has none.
func (r *Registry) TrackReuse(cfg Reuse) (err error) {
	t := cfg.Thresholds
	if t == nil {
		if t, err = r.measureThresholds(); err != nil {
			return err
		}
	}
	r.reuse = NewReuseTable(ReuseConfig{Thresholds: t, Speculation: cfg.Speculation, Buckets: cfg.Buckets, Frequent: cfg.Frequent})
	return nil
}

// TracksReuse reports whether the uses of small buffers are counted.
func (r *Registry) TracksReuse() bool { return r.reuse != nil }

// IsFrequent counts a use of a buffer, and reports whether to register it instead of
// copying.
func (r *Registry) IsFrequent(buf []byte) bool { return r.reuse != nil && r.recordUse(r.reuse, buf) }

// recordUse counts a use of a buffer. The time that passes grows with the hash chain.
func (r *Registry) recordUse(t *ReuseTable, buf []byte) bool {
	uses, passed := t.Stats.Uses, t.Stats.Passed
	frequent := t.RecordUse(addr(buf), len(buf))
	if t.Stats.Uses > uses {
		r.chargeLookups(1 + t.Stats.Passed - passed)
	}
	return frequent
}

// measureThresholds measures the costs of registration, copy and lookup, and computes the
// thresholds.
func (r *Registry) measureThresholds() (Thresholds, error) {
	const rounds, batches = 16, 8
	from, to := make([]byte, r.cfg.PacketSize), make([]byte, r.cfg.PacketSize)
	var failed error
	timeOf := func(f func() error) time.Duration {
		least := forever // the smallest: other processes only make it longer
		for range batches {
			began := r.clock()
			for range rounds {
				failed = errors.Join(failed, f())
			}
			least = min(least, (r.clock()-began)/rounds)
		}
		return least
	}
	// A frequent buffer costs a lookup in the reuse table and one in the registration
	// cache.
	table := NewReuseTable(ReuseConfig{Thresholds: Thresholds{1}})
	lookup := func() error {
		r.recordUse(table, from)
		region, err := r.Register(from)
		if err == nil {
			err = r.Release(region)
		}
		return err
	}
	if err := lookup(); err != nil { // the first lookup registers the buffer
		return nil, err
	}
	t := ComputeThresholds(Measured{
		LookUp: timeOf(lookup),
		Copy: func(n int) time.Duration {
			return timeOf(func() error {
				copy(to[:n], from[:n])
				r.ChargeCopy(n)
				return nil
			})
		},
		Register: func(n int) time.Duration {
			var all []*Block
			took := timeOf(func() error {
				b, err := r.register(from[:n])
				if err == nil {
					all = append(all, b)
				}
				return err
			})
			for _, b := range all { // not measured: it happens late, if at all
				failed = errors.Join(failed, r.deregister(b))
			}
			return took
		},
	}, r.cfg.PacketSize)
	failed = errors.Join(failed, r.Invalidate(from))
	r.cache.Stats = CacheStats{}
	return t, failed
}

// clock returns CPU time in real time, and the time of the world with simulated costs.
func (r *Registry) clock() time.Duration {
	if r.cfg.Costs != nil {
		return r.cfg.Now()
	}
	return time.Since(started)
}

var started = time.Now()

// Stats are the counters of a registry.
type Stats struct {
	Memory        Usage      `json:"memory"`
	Registrations CacheStats `json:"registrations"`
	// Reuse counts uses of small buffers. ReuseThresholds is how many uses of a size pay
	// for its registration.
	Reuse           ReuseStats `json:"reuse"`
	ReuseThresholds Thresholds `json:"reuse_pays,omitempty"`
}

// Stats returns the counters.
func (r *Registry) Stats() Stats {
	s := Stats{Memory: r.Usage, Registrations: r.cache.Stats}
	if r.reuse != nil {
		s.Reuse, s.ReuseThresholds = r.reuse.Stats, r.reuse.cfg.Thresholds
	}
	return s
}

// ZeroCopy is the number of small puts and gets without bounce buffer.
func (r *Registry) ZeroCopy() uint64 { return r.zeroCopy }
