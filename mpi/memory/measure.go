package memory

import (
	"errors"
	"time"
)

// Small data is usually copied behind its header, which is cheaper than registering its
// memory. A buffer that the program uses often is registered instead.

// TrackReuse starts to count the uses of small buffers, so that IsFrequent can select those to
// register. It measures the thresholds if cfg has none.
func (r *Registry) TrackReuse(cfg Reuse) (err error) {
	if cfg.Thresholds == nil {
		if cfg.Thresholds, err = r.measureThresholds(); err != nil {
			return err
		}
	}
	r.reuse = NewReuseTable(cfg)
	return nil
}

// IsFrequent counts a use of a buffer, and reports whether to register it instead of
// copying.
func (r *Registry) IsFrequent(buf []byte) bool { return r.reuse != nil && r.recordUse(r.reuse, buf) }

// recordUse counts a use of a buffer in a table and reports whether the buffer is frequent. It
// charges a lookup for each entry of the hash chain that was compared.
func (r *Registry) recordUse(t *ReuseTable, buf []byte) bool {
	uses, skipped := t.Stats.Uses, t.Stats.Skipped
	frequent := t.RecordUse(addr(buf), len(buf))
	if t.Stats.Uses > uses { // else the table does not track buffers of this size
		r.chargeLookups(1 + t.Stats.Skipped - skipped)
	}
	return frequent
}

// measureThresholds measures the CPU time of registration, copy and lookup for sizes up to the
// packet size, and computes after how many uses registration is cheaper than copying.
func (r *Registry) measureThresholds() (Thresholds, error) {
	const rounds, batches = 16, 8
	from, to := make([]byte, r.cfg.PacketSize), make([]byte, r.cfg.PacketSize)
	var failed error
	timeOf := func(f func() error) time.Duration {
		least := forever // the shortest batch counts: other processes can only prolong one
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
	table := NewReuseTable(Reuse{Thresholds: Thresholds{1}}) // all buffers are frequent
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
			var registered []*Block
			took := timeOf(func() error {
				b, err := r.register(from[:n])
				if err == nil {
					registered = append(registered, b)
				}
				return err
			})
			for _, b := range registered { // not measured: programs deregister late, if at all
				failed = errors.Join(failed, r.deregister(b))
			}
			return took
		},
	}, r.cfg.PacketSize)
	failed = errors.Join(failed, r.Invalidate(from))
	r.cache.Stats = CacheStats{} // forget the registrations of the measurement
	return t, failed
}

// clock returns the time for measurements: virtual time if costs are simulated, else real time.
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
	ZeroCopy        uint64     `json:"zero_copy"` // small puts and gets without bounce buffer
}

// Stats returns the counters of memory use, of the registration cache and of the reuse table.
func (r *Registry) Stats() Stats {
	s := Stats{Memory: r.Usage, Registrations: r.cache.Stats, ZeroCopy: r.zeroCopy}
	if r.reuse != nil {
		s.Reuse, s.ReuseThresholds = r.reuse.Stats, r.reuse.cfg.Thresholds
	}
	return s
}
