package memory

import (
	"fmt"
	"testing"
	"time"
)

// ns returns a cost function that grows with the size.
func ns(fixed, perKiB float64) func(int) time.Duration {
	return func(n int) time.Duration { return time.Duration(fixed + perKiB*float64(n)/1024) }
}

func TestComputeThresholds(t *testing.T) {
	c := Measured{Register: ns(10_000, 500), Copy: ns(20, 180), LookUp: 60}
	got := ComputeThresholds(c, 8192)
	if len(got) != 9 {
		t.Fatalf("%d classes of sizes", len(got))
	}
	for i, n := range got {
		size := max(i*1024, 512)
		// Registration pays for n uses, but not for n-1.
		pays := func(n int) bool {
			with := time.Duration(n)*c.LookUp + c.Register(size)
			return with < time.Duration(n)*c.Copy(size)
		}
		if !pays(n) || pays(n-1) {
			t.Errorf("%d bytes: %d uses", size, n)
		}
		if i > 0 && n > got[i-1] {
			t.Errorf("%d bytes need more uses than a smaller buffer: %v", size, got)
		}
	}
	if n := c.PaysFrom(8192); n != 256 { // copies take 65 ns, and half of it 42.5 ns
		t.Errorf("registration of %d bytes pays", n)
	}
	never := Measured{Register: ns(1, 1), Copy: ns(5, 0), LookUp: 10}
	if n := ComputeThresholds(never, 1024); n[0] != Never || n[1] != Never || never.PaysFrom(8192) != 0 {
		t.Errorf("copying is cheaper than a lookup: %v", n)
	}
	if Thresholds(nil).ForSize(5) != Never || (Thresholds{7, 3}).ForSize(1<<20) != 3 {
		t.Error("sizes beyond the table do not have its last threshold")
	}
}

func TestBufferIsFrequentAfterFractionOfThreshold(t *testing.T) {
	tab := NewReuseTable(Reuse{Thresholds: Thresholds{432, 200, 110, 76, 60}})
	for i := 1; i <= 30; i++ {
		if got, want := tab.RecordUse(0x1000, 4096), i > 15; got != want {
			t.Fatalf("use %d of 4 KiB, whose threshold is 60: frequent is %v", i, got)
		}
	}
	for i := range 1000 {
		if tab.RecordUse(0x2000, 127) {
			t.Fatalf("a buffer below the smallest size is frequent after %d uses", i)
		}
	}
	if s := tab.Stats; s.Uses != 30 || s.FrequentUses != 15 || s.CopiedUses != 15 || s.Buffers != 1 || s.FrequentBuffers != 1 {
		t.Errorf("%+v", s)
	}
}

// Buffers that are used once do not fill the table: it stops growing when hash chains
// form, and keeps counting the buffers in it.
func TestTableStopsGrowingWhenFewAreFrequent(t *testing.T) {
	tab := NewReuseTable(Reuse{Thresholds: Thresholds{4}, Buckets: 64})
	for i := range 10_000 {
		tab.RecordUse(uintptr(0x1000+i*4096), 512)
	}
	s := tab.Stats
	if !s.Stopped || s.Buffers > 64 || s.UntrackedUses == 0 {
		t.Errorf("after 10,000 buffers: %+v", s)
	}
	for range 5 {
		tab.RecordUse(0x1000, 512)
	}
	if tab.Stats.FrequentBuffers != 1 {
		t.Error("a buffer in the table is not frequent after many uses")
	}

	used := NewReuseTable(Reuse{Thresholds: Thresholds{4}, Buckets: 64})
	for i := range 500 {
		for range 8 {
			used.RecordUse(uintptr(0x1000+i*4096), 512)
		}
	}
	if s := used.Stats; s.Stopped || s.Buffers < 200 {
		t.Errorf("with buffers that are used often: %+v", s)
	}
	if used.Stats.Buffers > 4*64 {
		t.Errorf("%d buffers, with a limit of %d", used.Stats.Buffers, 4*64)
	}
}

func TestReuseInvalidate(t *testing.T) {
	tab := NewReuseTable(Reuse{Thresholds: Thresholds{4}, Buckets: 1, MinFrequent: -1, MaxBuffers: 100})
	const first, apart = uintptr(0x1000), uintptr(0x1000)
	use := func(i uintptr) bool { return tab.RecordUse(first+i*apart, 512) }
	for i := range uintptr(10) {
		for range 5 {
			use(i)
		}
	}
	for _, i := range []uintptr{0, 9, 4, 4} {
		tab.Reset(first + i*apart)
	}
	if s := tab.Stats; s.Buffers != 7 || s.FrequentBuffers != 7 || s.Chained != 6 {
		t.Errorf("%+v", s)
	}
	if use(4) || use(0) {
		t.Error("a removed buffer is still frequent")
	}
	// Memory from the middle of buffer 1 to the first byte of buffer 3.
	tab.Invalidate(first+apart+100, first+3*apart+1)
	if s := tab.Stats; s.Buffers != 6 || s.FrequentBuffers != 4 || s.Chained != 5 {
		t.Errorf("after removal of three buffers: %+v", s)
	}
	for i := range uintptr(9) {
		if got, want := use(i), i == 0 || i >= 4; got != want {
			t.Errorf("buffer %d is frequent: %v", i, got)
		}
	}
	tab.Invalidate(0, ^uintptr(0))
	if s := tab.Stats; s.Buffers != 0 || s.FrequentBuffers != 0 || s.Chained != 0 {
		t.Errorf("after removal of all: %+v", s)
	}
}

func BenchmarkUse(b *testing.B) {
	for _, n := range []int{1, 1000, 100_000} {
		b.Run(fmt.Sprintf("buffers=%d", n), func(b *testing.B) {
			tab := NewReuseTable(Reuse{Thresholds: Thresholds{4}, Buckets: 1 << 20, MinFrequent: -1})
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				tab.RecordUse(uintptr(0x1000+i*4096), 512)
				if i++; i == n {
					i = 0
				}
			}
		})
	}
}

func TestInvalidatedOnlyWithoutRegisteredMemory(t *testing.T) {
	buf := make([]byte, 100)
	r := &Registry{byKey: map[uint32]*Block{1: {buf: buf[40:60]}}} // in use by a transfer
	for _, c := range []struct {
		part []byte
		want bool
	}{{buf, false}, {buf[:41], false}, {buf[59:], false}, {buf[:40], true}, {buf[60:], true}} {
		if got := r.Invalidated(c.part); got != c.want {
			t.Errorf("%d bytes, %d before the end: %v", len(c.part), cap(c.part)-len(c.part), got)
		}
	}
	delete(r.byKey, 1)
	if !r.Invalidated(buf) {
		t.Error("not invalidated without registered memory")
	}
}
