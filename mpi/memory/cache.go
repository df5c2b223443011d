// Package memory manages the registered memory of a rank: it registers buffers of the
// program on all NICs, caches registrations, and has pools of buffers for packets. Package
// mpi/carrier uses it; it sends nothing.
//
// Registration is expensive. Unused registrations therefore stay until the limits of the
// [Cache] require eviction, least recently used first. Any subrange of a registered buffer is a
// hit. The cache keeps a reference to the memory, so the garbage collector cannot reuse its
// addresses while they are registered. Memory freed in another way must be invalidated first.
//
// A [ReuseTable] finds the small buffers that a program uses often enough for zero-copy.
//
// Nothing here is safe for concurrent use.
package memory

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"unsafe"
)

// CacheConfig configures a cache.
type CacheConfig[R any] struct {
	Register   func(buf []byte) (R, error)
	Deregister func(R) error
	// MaxIdle and MaxIdleBytes limit the unused registrations. If either is 0, none is kept.
	MaxIdle      int
	MaxIdleBytes int
}

// CacheStats are the statistics of a cache.
type CacheStats struct {
	Hits        uint64
	Misses      uint64
	Evictions   uint64
	Invalidated uint64 `json:"Forgotten"` // entries
	Bytes       int    // currently registered
	MaxBytes    int
	Regions     int // currently registered
}

// Entry is registered memory. It is in use until Release was called as often as Get.
type Entry[R any] struct {
	Region R

	buf        []byte
	from, to   uintptr
	uses       int
	detached   bool // not in entries: replaced, evicted or invalidated
	prev, next *Entry[R]
}

// Offset is the offset of a buffer in the entry's region.
func (e *Entry[R]) Offset(buf []byte) int { return int(addr(buf) - e.from) }

// Cache is a cache of registrations of type R.
type Cache[R any] struct {
	Stats CacheStats

	cfg CacheConfig[R]
	// entries are sorted by start address, and none contains another. Hence their ends are
	// sorted too, and the last entry that starts at or before an address reaches farthest.
	entries   []*Entry[R]
	idle      Entry[R] // ring of unused entries, most recently used first
	idleCount int
	idleBytes int
}

// NewCache returns an empty cache.
func NewCache[R any](cfg CacheConfig[R]) *Cache[R] {
	c := &Cache[R]{cfg: cfg}
	c.idle.prev, c.idle.next = &c.idle, &c.idle
	return c
}

// addr returns the address of the first byte.
func addr(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// firstAfter returns the index of the first entry that starts after an address.
func (c *Cache[R]) firstAfter(address uintptr) int {
	return sort.Search(len(c.entries), func(i int) bool { return c.entries[i].from > address })
}

// Find returns the entry that contains a buffer; nil if there is none. Unlike Get, it does not
// count a use of the entry, so the entry may be evicted. The entries are sorted and none contains
// another: only the last one that starts at or before the buffer can contain the buffer.
func (c *Cache[R]) Find(buf []byte) *Entry[R] {
	from := addr(buf)
	if i := c.firstAfter(from); i > 0 && from+uintptr(len(buf)) <= c.entries[i-1].to {
		return c.entries[i-1]
	}
	return nil
}

// Get returns an entry that contains a buffer, which must not be empty. If there is none, it
// registers the buffer. The caller must Release the entry. The error may also be that of
// deregistering smaller entries that the new one replaces.
func (c *Cache[R]) Get(buf []byte) (*Entry[R], error) {
	if len(buf) == 0 {
		return nil, errors.New("memory: an empty buffer needs no registration")
	}
	if e := c.Find(buf); e != nil {
		c.Stats.Hits++
		if e.uses++; e.uses == 1 {
			c.removeIdle(e)
		}
		return e, nil
	}
	c.Stats.Misses++
	region, err := c.cfg.Register(buf)
	if err != nil && c.idleCount > 0 { // unused registrations may exhaust the device
		if derr := c.Flush(); derr != nil {
			return nil, errors.Join(err, derr)
		}
		region, err = c.cfg.Register(buf)
	}
	if err != nil {
		return nil, fmt.Errorf("register %d bytes: %w", len(buf), err)
	}
	e := &Entry[R]{Region: region, buf: buf, from: addr(buf), to: addr(buf) + uintptr(len(buf)), uses: 1}
	c.Stats.Regions++
	c.Stats.Bytes += len(buf)
	c.Stats.MaxBytes = max(c.Stats.MaxBytes, c.Stats.Bytes)
	if err := c.insert(e); err != nil {
		return nil, errors.Join(err, c.Release(e))
	}
	return e, nil
}

// insert adds an entry, and removes the entries whose memory lies within its memory.
func (c *Cache[R]) insert(e *Entry[R]) error {
	first := sort.Search(len(c.entries), func(i int) bool { return c.entries[i].from >= e.from })
	last := first
	for last < len(c.entries) && c.entries[last].to <= e.to {
		last++
	}
	replaced := slices.Clone(c.entries[first:last])
	c.entries = slices.Replace(c.entries, first, last, e)
	return c.detach(replaced)
}

// detach marks entries that were removed from c.entries, and deregisters the unused ones. The
// others are deregistered by their last Release.
func (c *Cache[R]) detach(removed []*Entry[R]) (err error) {
	for _, e := range removed {
		e.detached = true
		if e.uses == 0 {
			c.removeIdle(e)
			err = errors.Join(err, c.deregister(e))
		}
	}
	return err
}

// Release ends one use of an entry. An unused entry stays registered while the limits of the
// configuration allow it.
func (c *Cache[R]) Release(e *Entry[R]) error {
	if e.uses--; e.uses > 0 {
		return nil
	}
	if e.uses < 0 {
		panic("memory: released more often than got")
	}
	if e.detached { // the cache no longer has it: it was replaced or invalidated while in use
		return c.deregister(e)
	}
	e.next, e.prev = c.idle.next, &c.idle
	e.next.prev, e.prev.next = e, e
	c.idleCount++
	c.idleBytes += len(e.buf)
	return c.evictIdle(c.cfg.MaxIdle, c.cfg.MaxIdleBytes)
}

// removeIdle removes an entry from the idle ring.
func (c *Cache[R]) removeIdle(e *Entry[R]) {
	e.prev.next, e.next.prev = e.next, e.prev
	e.prev, e.next = nil, nil
	c.idleCount--
	c.idleBytes -= len(e.buf)
}

// evictIdle deregisters the least recently used of the unused entries, until at most maxCount of
// them, with at most maxBytes in total, are left.
func (c *Cache[R]) evictIdle(maxCount, maxBytes int) (err error) {
	for c.idleCount > maxCount || c.idleBytes > maxBytes {
		e := c.idle.prev
		c.removeIdle(e)
		i := c.firstAfter(e.from) - 1
		c.entries = slices.Delete(c.entries, i, i+1)
		e.detached = true
		c.Stats.Evictions++
		err = errors.Join(err, c.deregister(e))
	}
	return err
}

// deregister deregisters the memory of a detached entry.
func (c *Cache[R]) deregister(e *Entry[R]) error {
	c.Stats.Regions--
	c.Stats.Bytes -= len(e.buf)
	e.buf = nil
	return c.cfg.Deregister(e.Region)
}

// Flush deregisters all unused entries.
func (c *Cache[R]) Flush() error { return c.evictIdle(0, 0) }

// Invalidate removes all entries that overlap memory which is about to be freed or reused.
// If inUse is true, the memory must not be freed until the entries in use are released.
func (c *Cache[R]) Invalidate(buf []byte) (inUse bool, err error) {
	from, to := addr(buf), addr(buf)+uintptr(len(buf))
	first := sort.Search(len(c.entries), func(i int) bool { return c.entries[i].to > from })
	last := first
	for last < len(c.entries) && c.entries[last].from < to {
		inUse = inUse || c.entries[last].uses > 0
		last++
	}
	removed := slices.Clone(c.entries[first:last])
	c.entries = slices.Delete(c.entries, first, last)
	c.Stats.Invalidated += uint64(len(removed))
	return inUse, c.detach(removed)
}
