package memory

import (
	"cmp"
	"errors"
	"math"
	"math/bits"
	"time"
)

// Never is the threshold of sizes for which registration does not pay.
const Never = math.MaxInt

// sizeStep is the width of a size class.
const sizeStep = 1024

// Thresholds are the numbers of uses after which registration pays, by size class: below 1
// KiB, below 2 KiB, and so on. Larger sizes use the last.
type Thresholds []int

// Measured is the measured time of a registration, a copy of n bytes, and a lookup.
type Measured struct {
	Register, Copy func(n int) time.Duration
	LookUp         time.Duration
}

// ComputeThresholds computes the threshold of each size class of 1 KiB up to maxSize: the number of
// uses after which the saved copies would cost more than the registration. A class has the costs of
// its smallest size, the first class those of 512 bytes.
func ComputeThresholds(costs Measured, maxSize int) (t Thresholds) {
	for n := 0; n <= maxSize; n += sizeStep {
		size := cmp.Or(n, sizeStep/2)
		saved := costs.Copy(size) - costs.LookUp // by each use
		if saved <= 0 {
			t = append(t, Never)
			continue
		}
		t = append(t, int(costs.Register(size)/saved)+1)
	}
	return t
}

// PaysFrom returns the smallest buffer, a power of two from 8 to maxSize bytes, whose registration
// pays if the buffer is used often enough: a copy takes longer than the lookups that a use of a
// registered buffer needs. It returns 0 if there is none.
func (m *Measured) PaysFrom(maxSize int) int {
	for n := 8; n <= maxSize; n *= 2 {
		if m.Copy(n) > m.LookUp {
			return n
		}
	}
	return 0
}

// ForSize returns the number of uses after which registering a buffer of n bytes pays, or Never.
func (t Thresholds) ForSize(n int) int {
	if len(t) == 0 {
		return Never
	}
	return t[min(n/sizeStep, len(t)-1)]
}

// Reuse configures how small buffers that are used often are detected.
type Reuse struct {
	// Off copies all small data.
	Off bool `json:"off,omitempty"`
	// Thresholds is how often a buffer of each size must be used before registration pays. By
	// default a Registry measures them; in simulation without costs it copies all small data.
	Thresholds Thresholds `json:"thresholds,omitempty"`
	// FrequentAfter is the fraction of its threshold after which a buffer is frequent; 0.25 if 0.
	FrequentAfter float64 `json:"speculation,omitempty"`
	// Buckets is the number of hash buckets, a power of two; 1 << 16 if 0.
	Buckets int `json:"buckets,omitempty"`
	// MinFrequent is the fraction of frequent buffers below which the table stops growing;
	// 0.2 if 0. A negative value never stops it.
	MinFrequent float64 `json:"frequent,omitempty"`
	// MaxBuffers is the maximum number of tracked buffers; four per bucket if 0.
	MaxBuffers int `json:"max_buffers,omitempty"`
}

// minTracked is the size of the smallest buffer that is tracked.
const minTracked = 128

// ReuseStats are the statistics of a table.
type ReuseStats struct {
	Uses            uint64 // of tracked sizes
	FrequentUses    uint64 `json:"Frequent"` // uses of frequent buffers
	CopiedUses      uint64 // uses of buffers that became frequent, before they did
	Buffers         int    // in the table
	Chained         int    // buffers that are not first in their bucket
	FrequentBuffers int    `json:"Often"`
	UntrackedUses   uint64 `json:"TooMany"` // uses of buffers that are not tracked because the table is full
	Stopped         bool   // the table does not grow
	MaxChain        int    `json:"MaxInLine"` // longest hash chain
	Skipped         uint64 `json:"Passed"`    // chain entries skipped by lookups
}

// ReuseTable counts the uses of small buffers, and finds those that are used often enough
// for zero-copy: registering them once is cheaper than copying at every use.
//
// With copy cost C, registration cost R and lookup cost V, n uses of a registered buffer
// save n(C-V) and cost R, so registration pays for n > R/(C-V). Sizes with C <= V are
// never looked up. As n is not known in advance, a buffer counts as frequent after a
// fraction of that number of uses.
//
// For a program that uses no buffer twice the lookups are wasted. The table therefore
// stops growing when hash chains form and few of its buffers are frequent.
type ReuseTable struct {
	Stats ReuseStats

	cfg     Reuse
	shift   uint // right shift of a hash that leaves the index of its bucket
	buckets []*trackedBuffer
}

// trackedBuffer is a buffer of the program, with the number of its uses.
type trackedBuffer struct {
	addr     uintptr
	size     int // largest size used
	uses     int
	next     *trackedBuffer
	frequent bool
}

// NewReuseTable returns an empty table, with defaults for zero fields of cfg except for Thresholds,
// which must be set.
func NewReuseTable(cfg Reuse) *ReuseTable {
	cfg.FrequentAfter = cmp.Or(cfg.FrequentAfter, 0.25)
	cfg.Buckets = cmp.Or(cfg.Buckets, 1<<16)
	cfg.MinFrequent = cmp.Or(cfg.MinFrequent, 0.2)
	cfg.MaxBuffers = cmp.Or(cfg.MaxBuffers, 4*cfg.Buckets)
	hashBits := uint(bits.Len(uint(cfg.Buckets - 1)))
	return &ReuseTable{cfg: cfg, shift: 64 - hashBits, buckets: make([]*trackedBuffer, 1<<hashBits)}
}

// hashMultiplier is 2^64 divided by the golden ratio, for multiplicative hashing.
const hashMultiplier = 0x9e3779b97f4a7c15

// RecordUse counts a use of n bytes at addr. It reports whether the buffer is frequent, that is,
// its uses exceed the configured fraction (FrequentAfter) of the threshold of its size, the number of uses
// from which registration takes less time than copies. It does not
// count buffers below minTracked bytes, and sizes for which registration never pays.
func (t *ReuseTable) RecordUse(addr uintptr, n int) (frequent bool) {
	if n < minTracked {
		return false
	}
	threshold := t.cfg.Thresholds.ForSize(n)
	if threshold == Never {
		return false
	}
	t.Stats.Uses++
	b := t.findOrAdd(addr)
	if b == nil {
		t.Stats.UntrackedUses++
		return false
	}
	b.uses++
	b.size = max(b.size, n)
	if float64(b.uses) <= t.cfg.FrequentAfter*float64(threshold) {
		return false
	}
	if !b.frequent {
		b.frequent = true
		t.Stats.FrequentBuffers++
		t.Stats.CopiedUses += uint64(b.uses - 1)
	}
	t.Stats.FrequentUses++
	return true
}

// findOrAdd returns the buffer at addr and adds it if needed; nil if the table is full.
func (t *ReuseTable) findOrAdd(addr uintptr) *trackedBuffer {
	slot := &t.buckets[uint64(addr)*hashMultiplier>>t.shift]
	depth := 0
	for b := *slot; b != nil; b = b.next {
		if b.addr == addr {
			return b
		}
		depth++
		t.Stats.Skipped++
	}
	if t.isFull(depth) {
		return nil
	}
	b := &trackedBuffer{addr: addr, next: *slot}
	*slot = b
	t.Stats.Buffers++
	if depth > 0 {
		t.Stats.Chained++
	}
	t.Stats.MaxChain = max(t.Stats.MaxChain, depth+1)
	return b
}

// isFull reports whether the table takes no further buffer, and updates Stats.Stopped. depth is the
// number of buffers in the hash chain that the buffer would join. Without chains the lookup cost
// does not grow, so the table stops growing only when chains have formed and less than the fraction
// cfg.MinFrequent of the buffers is used often.
func (t *ReuseTable) isFull(depth int) bool {
	s := &t.Stats
	if s.Buffers >= t.cfg.MaxBuffers {
		return true
	}
	chains := depth > 0 || s.Chained > 0
	s.Stopped = chains && float64(s.FrequentBuffers) < t.cfg.MinFrequent*float64(s.Buffers)
	return s.Stopped
}

// Reset removes the buffer at addr, with its use count, after its registration was evicted.
func (t *ReuseTable) Reset(addr uintptr) {
	slot := &t.buckets[uint64(addr)*hashMultiplier>>t.shift]
	t.remove(slot, func(b *trackedBuffer) bool { return b.addr == addr })
}

// Invalidate removes all buffers that overlap memory which was freed or is reused.
func (t *ReuseTable) Invalidate(from, to uintptr) {
	for i := range t.buckets {
		t.remove(&t.buckets[i], func(b *trackedBuffer) bool { return b.addr < to && b.addr+uintptr(b.size) > from })
	}
}

// remove removes the buffers for which match returns true from the chain of a bucket.
func (t *ReuseTable) remove(slot **trackedBuffer, match func(*trackedBuffer) bool) {
	for at := slot; *at != nil; {
		b := *at
		if !match(b) {
			at = &b.next
			continue
		}
		*at = b.next
		if *slot != nil { // Chained counts one buffer less than the chain has
			t.Stats.Chained--
		}
		t.Stats.Buffers--
		if b.frequent {
			t.Stats.FrequentBuffers--
		}
	}
}

// Small data is usually copied behind its header, which is cheaper than registering its
// memory. A buffer that the program uses often is registered instead.

// TrackReuse starts to count the uses of small buffers, so that IsFrequent can select those to
// register. It measures cfg.Thresholds, the uses after which registration pays, if they are nil.
func (r *Registry) TrackReuse(cfg Reuse) (err error) {
	if cfg.Thresholds == nil {
		if cfg.Thresholds, r.paysFrom, err = r.measureThresholds(); err != nil {
			return err
		}
	}
	r.reuse = NewReuseTable(cfg)
	return nil
}

// IsFrequent counts a use of a buffer, and reports whether to register it instead of copying.
func (r *Registry) IsFrequent(buf []byte) bool { return r.reuse != nil && r.recordUse(r.reuse, buf) }

// recordUse counts a use of a buffer in a table and reports whether the buffer is used often. It
// advances the virtual time by one lookup, and one more for each skipped entry of the hash chain.
func (r *Registry) recordUse(t *ReuseTable, buf []byte) bool {
	uses, skipped := t.Stats.Uses, t.Stats.Skipped
	frequent := t.RecordUse(addr(buf), len(buf))
	if t.Stats.Uses > uses { // else the table does not track buffers of this size
		r.chargeLookups(1 + t.Stats.Skipped - skipped)
	}
	return frequent
}

// slowCall is the time of a call from which on two calls are measured and not 128: some devices take
// milliseconds for a registration.
const slowCall = 200 * time.Microsecond

// measureThresholds measures the CPU time of registration, copy and lookup for sizes up to the
// packet size, and computes after how many uses registration is cheaper than copying. paysFrom is the
// smallest size for which it ever is (Measured.PaysFrom).
func (r *Registry) measureThresholds() (t Thresholds, paysFrom int, err error) {
	from, to := make([]byte, r.cfg.PacketSize), make([]byte, r.cfg.PacketSize)
	var failed error
	timeOf := func(f func() error) time.Duration {
		least := forever // the shortest batch counts: other processes can only prolong one
		rounds, batches := 16, 8
		if r.cfg.Costs == nil { // in virtual time nobody waits
			began := r.clock()
			failed = errors.Join(failed, f())
			if r.clock()-began > slowCall {
				rounds, batches = 1, 2
			}
		}
		for range batches {
			began := r.clock()
			for range rounds {
				failed = errors.Join(failed, f())
			}
			least = min(least, (r.clock()-began)/time.Duration(rounds))
		}
		return least
	}
	// A frequent buffer costs a lookup in the reuse table and in the registration cache.
	table := NewReuseTable(Reuse{Thresholds: Thresholds{1}}) // all buffers are frequent
	lookup := func() error {
		r.recordUse(table, from)
		region, err := r.RegisterWithNICs(from)
		if err == nil {
			err = r.Release(region)
		}
		return err
	}
	if err := lookup(); err != nil { // the first lookup registers the buffer
		return nil, 0, err
	}
	costs := Measured{
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
	}
	t, paysFrom = ComputeThresholds(costs, r.cfg.PacketSize), costs.PaysFrom(r.cfg.PacketSize)
	failed = errors.Join(failed, r.Invalidate(from))
	r.cache.Stats = CacheStats{} // forget the registrations of the measurement
	return t, paysFrom, failed
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
	// for its registration, and ReusePaysFrom the smallest size, a power of two, of which any
	// number of uses does; 0 if that was not measured.
	Reuse           ReuseStats `json:"reuse"`
	ReuseThresholds Thresholds `json:"reuse_pays,omitempty"`
	ReusePaysFrom   int        `json:"reuse_pays_from,omitempty"`
	ZeroCopy        uint64     `json:"zero_copy"` // small puts and gets without bounce buffer
}

// Stats returns the counters of memory use, of the registration cache and of the reuse table.
func (r *Registry) Stats() Stats {
	s := Stats{Memory: r.Usage, Registrations: r.cache.Stats, ZeroCopy: r.zeroCopy}
	if r.reuse != nil {
		s.Reuse, s.ReuseThresholds, s.ReusePaysFrom = r.reuse.Stats, r.reuse.cfg.Thresholds, r.paysFrom
	}
	return s
}
