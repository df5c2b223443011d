// Package reuse finds the small buffers that a program uses so often that sending
// from them directly, once they are registered, is cheaper than copying.
//
// A registered buffer saves a copy (C) at every use, for the price of the
// registration (R) once and of looking buffers up (V) at every use of any. Over n
// uses that pays if n > R/(C-V); where a copy is cheaper than the look-up it never
// does, and the sizes for which that is so are not looked up at all. As nobody knows
// how often a buffer will be used, one counts as frequent when it has been used a
// part of n times.
//
// Programs that use no buffer twice would pay for the look-up and get nothing. So
// the table stops to grow when its buckets have begun to chain and few of the
// buffers in it are frequent.
package reuse

import (
	"math"
	"time"
)

// Costs are what things cost, by size.
type Costs struct {
	Register func(n int) time.Duration
	Copy     func(n int) time.Duration
	LookUp   time.Duration
}

// Never is the threshold of sizes that registration does not pay for.
const Never = math.MaxInt

// step is how finely thresholds tell sizes apart.
const sizeStep = 1024

// Thresholds are how often buffers must be used for registration to pay, by size.
// The first is for sizes below 1 KiB, the second for those below 2 KiB, and so on;
// what is longer has the last.
type Thresholds []int

// Measured computes thresholds from costs, for messages of up to so many bytes. A class
// of sizes has that of its smallest, for which it pays least; the first, where 0
// bytes cost nothing to copy, that of 512.
func ComputeThresholds(c Costs, longest int) (t Thresholds) {
	for n := 0; n <= longest; n += sizeStep {
		size := n
		if n == 0 {
			size = sizeStep / 2
		}
		saved := c.Copy(size) - c.LookUp
		if saved <= 0 {
			t = append(t, Never)
			continue
		}
		t = append(t, int(c.Register(size)/saved)+1)
	}
	return t
}

// of is the threshold of a size.
func (t Thresholds) forSize(n int) int {
	if len(t) == 0 {
		return Never
	}
	return t[min(n/sizeStep, len(t)-1)]
}

// Config is how a table decides. Thresholds are needed.
type Config struct {
	Thresholds Thresholds
	// MinSize is below which buffers are not looked at; 128 if 0.
	MinSize int
	// Speculation is the part of the threshold from which a buffer is frequent; 0.25
	// if 0.
	Speculation float64
	// Buckets are those of the table, a power of two; 1 << 16 if 0.
	Buckets int
	// Frequent is the share of frequent buffers below which the table stops to grow;
	// 0.2 if 0. A negative share lets it grow for ever.
	Frequent float64
	// MaxBuffers is how many a table remembers at most; four a bucket if 0.
	MaxBuffers int
}

func (c *Config) setDefaults() {
	if c.MinSize == 0 {
		c.MinSize = 128
	}
	if c.Speculation == 0 {
		c.Speculation = 0.25
	}
	if c.Buckets == 0 {
		c.Buckets = 1 << 16
	}
	if c.Frequent == 0 {
		c.Frequent = 0.2
	}
	if c.MaxBuffers == 0 {
		c.MaxBuffers = 4 * c.Buckets
	}
}

// Stats counts what a table saw.
type Stats struct {
	Uses      uint64 // of buffers that were looked at
	Frequent  uint64 // of those, by frequent ones
	Buffers   int    // in the table
	Chained   int    // of them, behind another in its bucket
	Often     int    // of them, frequent
	TooMany   uint64 // uses of buffers that the table had no place for
	Stopped   bool   // it does not grow any more
	MaxInLine int    // the longest chain
	Passed    uint64 // buffers that look-ups went past, in chains
}

// Table counts uses. It belongs to one goroutine.
type Table struct {
	Stats Stats

	cfg     Config
	shift   uint
	buckets []*buffer
}

type buffer struct {
	addr     uintptr
	size     int // the largest it was used with
	uses     int
	next     *buffer
	frequent bool // as frequent
}

// New returns an empty table.
func New(cfg Config) *Table {
	cfg.setDefaults()
	shift := uint(64)
	for n := 1; n < cfg.Buckets; n *= 2 {
		shift--
	}
	return &Table{cfg: cfg, shift: shift, buckets: make([]*buffer, 1<<(64-shift))}
}

// golden is 2^64 divided by the golden ratio: multiplied with it, addresses that
// differ in a few bits differ in the highest.
const hashMultiplier = 0x9e3779b97f4a7c15

// Use counts a use of the n bytes at an address, and reports whether that buffer is
// frequent: it should be registered, if it is not already.
func (t *Table) RecordUse(addr uintptr, n int) (frequent bool) {
	if n < t.cfg.MinSize {
		return false
	}
	threshold := t.cfg.Thresholds.forSize(n)
	if threshold == Never {
		return false
	}
	t.Stats.Uses++
	b := t.findOrAdd(addr)
	if b == nil {
		t.Stats.TooMany++
		return false
	}
	b.uses++
	b.size = max(b.size, n)
	if float64(b.uses) <= t.cfg.Speculation*float64(threshold) {
		return false
	}
	if !b.frequent {
		b.frequent = true
		t.Stats.Often++
	}
	t.Stats.Frequent++
	return true
}

// find returns the buffer at an address, and adds it if there is a place; nil if
// there is none.
func (t *Table) findOrAdd(addr uintptr) *buffer {
	slot := &t.buckets[uint64(addr)*hashMultiplier>>t.shift]
	depth := 0
	for b := *slot; b != nil; b = b.next {
		if b.addr == addr {
			return b
		}
		depth++
		t.Stats.Passed++
	}
	if t.full(depth) {
		return nil
	}
	b := &buffer{addr: addr, next: *slot}
	*slot = b
	t.Stats.Buffers++
	if depth > 0 {
		t.Stats.Chained++
	}
	t.Stats.MaxInLine = max(t.Stats.MaxInLine, depth+1)
	return b
}

// full reports whether the table takes no more buffers. It acts only when there is a
// chain to be seen: as long as there is none, looking up costs the same for any
// number of buffers.
func (t *Table) full(depth int) bool {
	s := &t.Stats
	if s.Buffers >= t.cfg.MaxBuffers {
		return true
	}
	chains := depth > 0 || s.Chained > 0
	s.Stopped = chains && float64(s.Often) < t.cfg.Frequent*float64(s.Buffers)
	return s.Stopped
}

// Drop has a buffer be counted from the start again: what registering it cost is to be
// earned once more.
func (t *Table) Reset(addr uintptr) {
	slot := &t.buckets[uint64(addr)*hashMultiplier>>t.shift]
	t.remove(slot, func(b *buffer) bool { return b.addr == addr })
}

// Forget says that memory is not what it was: it was freed, or is used for something
// else. All buffers are forgotten that have a part of it.
func (t *Table) Invalidate(from, to uintptr) {
	for i := range t.buckets {
		t.remove(&t.buckets[i], func(b *buffer) bool { return b.addr < to && b.addr+uintptr(b.size) > from })
	}
}

// remove takes those out of a bucket that something holds of.
func (t *Table) remove(slot **buffer, match func(*buffer) bool) {
	for at := slot; *at != nil; {
		b := *at
		if !match(b) {
			at = &b.next
			continue
		}
		if *at = b.next; *slot != nil {
			t.Stats.Chained--
		}
		t.Stats.Buffers--
		if b.frequent {
			t.Stats.Often--
		}
	}
}
