package memory

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// device counts registrations and has limited capacity.
type device struct {
	t    *testing.T
	live map[int][]byte
	next int
	room int
}

var errFull = errors.New("device is full")

func (d *device) config(count, bytes int) CacheConfig[int] {
	return CacheConfig[int]{Register: d.register, Deregister: d.deregister, MaxIdle: count, MaxIdleBytes: bytes}
}

func (d *device) register(buf []byte) (int, error) {
	if d.room > 0 && len(d.live) == d.room {
		return 0, errFull
	}
	d.next++
	d.live[d.next] = buf
	return d.next, nil
}

func (d *device) deregister(r int) error {
	if d.live[r] == nil {
		d.t.Errorf("region %d is deregistered twice", r)
	}
	delete(d.live, r)
	return nil
}

// newCache returns a cache that keeps up to count registrations of bytes bytes, and its device.
func newCache(t *testing.T, count, bytes int) (*device, *Cache[int]) {
	d := &device{t: t, live: make(map[int][]byte)}
	return d, NewCache(d.config(count, bytes))
}

func get(t *testing.T, c *Cache[int], buf []byte) *Entry[int] {
	t.Helper()
	return must.Get(c.Get(buf))(t)
}

func release(t *testing.T, c *Cache[int], e *Entry[int]) {
	t.Helper()
	must.Do(t, c.Release(e))
}

func TestReleasedRegionIsReused(t *testing.T) {
	d, c := newCache(t, 10, 1000)
	buf := make([]byte, 100)
	for range 5 {
		release(t, c, get(t, c, buf))
	}
	e := get(t, c, buf[20:50])
	if e.Offset(buf[20:50]) != 20 || d.next != 1 {
		t.Errorf("a part has offset %d, after %d registrations", e.Offset(buf[20:50]), d.next)
	}
	if c.Stats.Hits != 5 || c.Stats.Misses != 1 {
		t.Errorf("%+v", c.Stats)
	}
}

func TestEvictsLeastRecentlyUsed(t *testing.T) {
	d, c := newCache(t, 2, 1000)
	bufs := [][]byte{make([]byte, 10), make([]byte, 10), make([]byte, 10)}
	for _, i := range []int{0, 1, 0, 2} {
		release(t, c, get(t, c, bufs[i]))
	}
	for i, want := range []bool{true, false, true} {
		if found := c.Find(bufs[i]) != nil; found != want {
			t.Errorf("buffer %d is cached: %v", i, found)
		}
	}
	held := get(t, c, bufs[0])
	if err := c.Flush(); err != nil || c.Find(bufs[0]) == nil || len(d.live) != 1 {
		t.Errorf("after a flush %d are registered, %v", len(d.live), err)
	}
	release(t, c, held)
	c2 := NewCache(d.config(0, 0))
	release(t, c2, get(t, c2, bufs[1]))
	if c2.Stats.Regions != 0 {
		t.Error("a cache with limit 0 keeps an entry")
	}
}

func TestIdleBytesLimit(t *testing.T) {
	d, c := newCache(t, 100, 250)
	for range 5 {
		release(t, c, get(t, c, make([]byte, 100)))
	}
	if c.Stats.Bytes != 200 || len(d.live) != 2 || c.Stats.Evictions != 3 {
		t.Errorf("%+v, %d regions", c.Stats, len(d.live))
	}
}

// When registration fails, the cache deregisters unused entries and retries.
func TestRegistrationFailureFlushesIdle(t *testing.T) {
	d, c := newCache(t, 10, 1000)
	d.room = 2
	held := get(t, c, make([]byte, 10))
	release(t, c, get(t, c, make([]byte, 10)))
	e := get(t, c, make([]byte, 10))
	if _, err := c.Get(make([]byte, 10)); !errors.Is(err, errFull) {
		t.Errorf("registration on a full device: %v", err)
	}
	release(t, c, e)
	release(t, c, held)
}

func TestInvalidate(t *testing.T) {
	d, c := newCache(t, 10, 1000)
	buf := make([]byte, 100)
	release(t, c, get(t, c, buf[:50]))
	held := get(t, c, buf[50:])
	if inUse, err := c.Invalidate(buf[10:20]); inUse || err != nil || c.Find(buf[:50]) != nil {
		t.Errorf("the idle half is in use: %v, %v", inUse, err)
	}
	if inUse, err := c.Invalidate(buf); !inUse || err != nil || c.Find(buf[50:]) != nil {
		t.Errorf("the other half is in use: %v, %v", inUse, err)
	}
	again := get(t, c, buf[50:])
	if again == held {
		t.Error("invalidated memory is in the cache")
	}
	release(t, c, held)
	release(t, c, again)
	if len(d.live) != 1 {
		t.Errorf("%d regions are still registered", len(d.live))
	}
}

// watchCollection makes a cache register a buffer without other references, and returns a
// function that reports whether the collector has freed it.
func watchCollection(t *testing.T, c *Cache[int]) func() bool {
	t.Helper()
	var freed atomic.Bool
	buf := make([]byte, 10_000)
	runtime.AddCleanup(&buf[0], func(*struct{}) { freed.Store(true) }, nil)
	release(t, c, get(t, c, buf))
	return func() bool {
		for range 100 {
			runtime.GC()
			if freed.Load() {
				return true
			}
			runtime.Gosched()
		}
		return false
	}
}

// The garbage collector does not free registered memory until the cache evicts it, so no
// other buffer can get its address.
func TestRegisteredMemoryIsNotCollected(t *testing.T) {
	c := NewCache(CacheConfig[int]{Register: func([]byte) (int, error) { return 0, nil }, Deregister: func(int) error { return nil }, MaxIdle: 2, MaxIdleBytes: 1 << 20})
	freed := watchCollection(t, c)
	if freed() {
		t.Fatal("registered memory was freed")
	}
	for range 2 { // other buffers evict it
		release(t, c, get(t, c, make([]byte, 100)))
	}
	if c.Stats.Evictions != 1 || !freed() {
		t.Errorf("unused memory is not freed: %+v", c.Stats)
	}
	freed = watchCollection(t, c)
	if err := c.Flush(); err != nil || !freed() {
		t.Errorf("unused memory is not freed after a flush: %v", err)
	}
}

// After random operations an entry contains its buffer, entries in use are registered, and no
// registration is leaked.
func TestRandomOperations(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 3))
		d, c := newCache(t, r.IntN(6), r.IntN(500))
		heap := make([]byte, 300)
		var held []*Entry[int]
		for range 500 {
			from := r.IntN(len(heap))
			part := heap[from : from+1+r.IntN(len(heap)-from)]
			switch r.IntN(5) {
			case 0, 1:
				e := get(t, c, part)
				if b := d.live[e.Region]; b == nil || e.Offset(part) < 0 || e.Offset(part)+len(part) > len(b) || &b[e.Offset(part)] != &part[0] {
					t.Fatalf("seed %d: the region is not registered, or of other memory", seed)
				}
				held = append(held, e)
			case 2, 3:
				if len(held) > 0 {
					i := r.IntN(len(held))
					release(t, c, held[i])
					held = slices.Delete(held, i, i+1)
				}
			case 4:
				must.Get(c.Invalidate(part))(t)
			}
			for _, e := range held {
				if d.live[e.Region] == nil {
					t.Fatalf("seed %d: a region in use was deregistered", seed)
				}
			}
			for i := 1; i < len(c.entries); i++ {
				if a, b := c.entries[i-1], c.entries[i]; a.from >= b.from || a.to >= b.to {
					t.Fatalf("seed %d: one entry contains another", seed)
				}
			}
			if len(d.live) != c.Stats.Regions {
				t.Fatalf("seed %d: %d regions, counted %d", seed, len(d.live), c.Stats.Regions)
			}
		}
		for _, e := range held {
			release(t, c, e)
		}
		if err := c.Flush(); err != nil || len(d.live) != 0 || c.Stats.Bytes != 0 {
			t.Fatalf("seed %d: %d regions are still registered, %d bytes, %v", seed, len(d.live), c.Stats.Bytes, err)
		}
	}
}

func BenchmarkGetAgain(b *testing.B) {
	c := NewCache(CacheConfig[int]{Register: func([]byte) (int, error) { return 0, nil }, Deregister: func(int) error { return nil }, MaxIdle: 1 << 20, MaxIdleBytes: 1 << 40})
	heap := make([]byte, 1<<20)
	for i := range 1000 {
		e, _ := c.Get(heap[i*1000 : i*1000+500])
		must.Do(b, c.Release(e))
	}
	b.ReportAllocs()
	for b.Loop() {
		e, _ := c.Get(heap[500_100:500_200])
		must.Do(b, c.Release(e))
	}
}

// Get registers a larger buffer in place of a smaller one. If deregistering the smaller one fails, Get returns
// an error, and the larger registration must have no reference: nobody would release it.
func TestFailedReplacementLeavesNoUse(t *testing.T) {
	d, c := newCache(t, 10, 1000)
	buf := make([]byte, 100)
	release(t, c, get(t, c, buf[:50]))
	errBusy := errors.New("device is busy")
	c.cfg.Deregister = func(int) error { return errBusy }
	if e, err := c.Get(buf); e != nil || !errors.Is(err, errBusy) {
		t.Errorf("%v, %v; want no entry and the error of the device", e, err)
	}
	c.cfg.Deregister = d.deregister
	if inUse, err := c.Invalidate(buf); inUse || err != nil {
		t.Errorf("the memory is in use: %v, %v", inUse, err)
	}
}

// Without RDMA, peers name memory that no NIC knows, until it is released.
func TestMemoryWithoutRDMAIsNotRegistered(t *testing.T) {
	r := New(Config{NoRDMA: true, PacketSize: 64}) // without a domain to register in
	first, second := make([]byte, 100), make([]byte, 10)
	a, b := must.Get(r.Register(first))(t), must.Get(r.Sink(second))(t)
	m, n := a.Memory(), b.Memory()
	if got := r.Find(m.Addr+40, m.Keys[0], 60); len(got) != 60 || &got[0] != &first[40] {
		t.Errorf("60 bytes at offset 40: %d bytes", len(got))
	}
	if r.Find(m.Addr+41, m.Keys[0], 60) != nil || r.Find(m.Addr, n.Keys[0], 10) != nil || m.Rails != 1 {
		t.Errorf("memory %+v is found beyond its end, or with the key of %+v", m, n)
	}
	if r.Invalidated(first[50:]) || !errors.Is(r.Invalidate(first[50:]), verbs.ErrBusy) {
		t.Error("memory of a region is free to reuse")
	}
	must.Do(t, r.Release(a))
	if r.Find(m.Addr, m.Keys[0], 1) != nil || !r.Invalidated(first) || r.Find(n.Addr, n.Keys[0], 10) == nil {
		t.Error("Release does not end the access to one region, or to both")
	}
}

// domain is a protection domain that registers memory as kernels do: at the address that init names,
// which must have the page offset of the memory.
type domain struct {
	verbs.PD
	registered int
	slow       time.Duration
}

func (d *domain) RegMR(init verbs.MRInit) (verbs.MR, error) {
	const page = 4096
	d.registered++
	time.Sleep(d.slow)
	if init.Addr%page != uint64(addr(init.Buf))%page {
		return nil, verbs.ErrInvalid
	}
	return region{}, nil
}

type region struct{ verbs.MR }

func (region) RKey() verbs.RKey { return 1 }
func (region) Close() error     { return nil }

// Kernels reject addresses with another page offset than the memory.
func TestMemoryHasItsOwnAddress(t *testing.T) {
	r := New(Config{Domains: []Domain{{PD: new(domain)}}, OwnAddresses: true, PacketSize: 64})
	buf := make([]byte, 9000)[7:]
	m := must.Get(r.Register(buf))(t).Memory()
	if m.Addr != uint64(addr(buf)) {
		t.Errorf("memory at %#x is registered at %#x", addr(buf), m.Addr)
	}
}

// A rank on a device that takes milliseconds for a registration starts without thousands of them.
func TestSlowRegistrationsAreMeasuredSeldom(t *testing.T) {
	const classes = 17 // of 1 KiB, up to the packet size
	d := &domain{slow: 2 * slowCall}
	r := New(Config{Domains: []Domain{{PD: d}}, OwnAddresses: true, PacketSize: 16 << 10, Now: func() time.Duration { return 0 }})
	must.Do(t, r.TrackReuse(Reuse{}))
	if n := len(r.reuse.cfg.Thresholds); n != classes || d.registered > 4*classes {
		t.Errorf("%d registrations for the thresholds of %d classes", d.registered, n)
	}
}
