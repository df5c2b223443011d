// Package regcache keeps memory registered that programs use again: registering is
// dear, and most programs send from the same buffers for ever.
//
// What nobody uses any more stays registered until room is needed for something
// else, the least recently used first. A region is found by any part of its memory.
// The cache holds on to the memory itself too, so that the collector cannot give
// its addresses to something else while they are registered; whoever frees memory
// in other ways says so with Forget.
//
// A cache belongs to one goroutine.
package regcache

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"unsafe"
)

// Config is how a cache registers, and how much it keeps.
type Config[R any] struct {
	Register   func(buf []byte) (R, error)
	Deregister func(R) error
	// MaxIdle and MaxIdleBytes limit what is kept registered without being used.
	// Either of them at 0 keeps nothing.
	MaxIdle      int
	MaxIdleBytes int
}

// Stats counts what a cache did.
type Stats struct {
	Hits      uint64
	Misses    uint64
	Evictions uint64
	Forgotten uint64 // for their memory was freed
	Bytes     int    // that are registered now
	MaxBytes  int
	Regions   int // now
}

// Entry is registered memory, in use until it is released as often as it was got.
type Entry[R any] struct {
	Region R

	buf        []byte
	from, to   uintptr
	uses       int
	detached   bool // in no index: a larger one has its place, or its memory is freed
	prev, next *Entry[R]
}

// Offset is where a buffer that the entry was got for begins in its region.
func (e *Entry[R]) Offset(buf []byte) int { return int(addr(buf) - e.from) }

// Cache is one.
type Cache[R any] struct {
	Stats Stats

	cfg Config[R]
	// all are sorted, and none contains another: so their ends are sorted too, and the
	// last that begins before an address reaches farthest behind it.
	entries   []*Entry[R]
	idle      Entry[R] // a ring, from the one used last to the one used least recently
	idleCount int
	idleBytes int
}

// New returns a cache with nothing in it.
func New[R any](cfg Config[R]) *Cache[R] {
	c := &Cache[R]{cfg: cfg}
	c.idle.prev, c.idle.next = &c.idle, &c.idle
	return c
}

func addr(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// after is the index of the first entry that begins behind an address.
func (c *Cache[R]) firstAfter(a uintptr) int {
	i, _ := slices.BinarySearchFunc(c.entries, a, func(e *Entry[R], a uintptr) int {
		if e.from <= a {
			return -1
		}
		return 1
	})
	return i
}

// Find returns the entry that has a buffer in it, without using it; nil if there is
// none.
func (c *Cache[R]) Find(buf []byte) *Entry[R] {
	from := addr(buf)
	if i := c.firstAfter(from); i > 0 && from+uintptr(len(buf)) <= c.entries[i-1].to {
		return c.entries[i-1]
	}
	return nil
}

// Get returns registered memory with a buffer in it, which must not be empty.
func (c *Cache[R]) Get(buf []byte) (*Entry[R], error) {
	if len(buf) == 0 {
		return nil, errors.New("regcache: an empty buffer needs no registration")
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
	if err != nil && c.idleCount > 0 { // what is kept may be what is lacking
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
	return e, c.insert(e)
}

// insert puts an entry in the place of those that it contains.
func (c *Cache[R]) insert(e *Entry[R]) error {
	first, _ := slices.BinarySearchFunc(c.entries, e.from, func(x *Entry[R], a uintptr) int { return cmp.Compare(x.from, a) })
	last := first
	for last < len(c.entries) && c.entries[last].to <= e.to {
		last++
	}
	replaced := slices.Clone(c.entries[first:last])
	c.entries = slices.Replace(c.entries, first, last, e)
	return c.detach(replaced)
}

// unlist lets go of entries that are in the index no more.
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

// Release gives an entry back. It stays registered if there is room.
func (c *Cache[R]) Release(e *Entry[R]) error {
	if e.uses--; e.uses > 0 {
		return nil
	}
	if e.uses < 0 {
		panic("regcache: released more often than got")
	}
	if e.detached {
		return c.deregister(e)
	}
	e.next, e.prev = c.idle.next, &c.idle
	e.next.prev, e.prev.next = e, e
	c.idleCount++
	c.idleBytes += len(e.buf)
	return c.evictIdle(c.cfg.MaxIdle, c.cfg.MaxIdleBytes)
}

// wake takes an entry out of the idle ones.
func (c *Cache[R]) removeIdle(e *Entry[R]) {
	e.prev.next, e.next.prev = e.next, e.prev
	e.prev, e.next = nil, nil
	c.idleCount--
	c.idleBytes -= len(e.buf)
}

// shrink evicts idle entries until there are no more than so many.
func (c *Cache[R]) evictIdle(count, bytes int) (err error) {
	for c.idleCount > count || c.idleBytes > bytes {
		e := c.idle.prev
		c.removeIdle(e)
		c.remove(e)
		c.Stats.Evictions++
		err = errors.Join(err, c.deregister(e))
	}
	return err
}

func (c *Cache[R]) remove(e *Entry[R]) {
	i := c.firstAfter(e.from) - 1
	c.entries = slices.Delete(c.entries, i, i+1)
	e.detached = true
}

func (c *Cache[R]) deregister(e *Entry[R]) error {
	c.Stats.Regions--
	c.Stats.Bytes -= len(e.buf)
	e.buf = nil
	return c.cfg.Deregister(e.Region)
}

// Flush deregisters everything that nobody uses.
func (c *Cache[R]) Flush() error { return c.evictIdle(0, 0) }

// Forget says that memory is about to be freed, or used for something else: what is
// registered of it is not found any more. It reports whether any of it is in use,
// and so must not be freed yet.
func (c *Cache[R]) Invalidate(buf []byte) (inUse bool, err error) {
	from, to := addr(buf), addr(buf)+uintptr(len(buf))
	first, _ := slices.BinarySearchFunc(c.entries, from, func(x *Entry[R], a uintptr) int {
		if x.to <= a {
			return -1
		}
		return 1
	})
	last := first
	for last < len(c.entries) && c.entries[last].from < to {
		inUse = inUse || c.entries[last].uses > 0
		last++
	}
	removed := slices.Clone(c.entries[first:last])
	c.entries = slices.Delete(c.entries, first, last)
	c.Stats.Forgotten += uint64(len(removed))
	return inUse, c.detach(removed)
}
