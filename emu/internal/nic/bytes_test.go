package nic

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

func TestBytesRejectsOutOfRange(t *testing.T) {
	for _, c := range []struct {
		name string
		off  uint64
		n    int
		ok   bool
	}{
		{"all of it", 0, 16, true},
		{"the last byte", 15, 1, true},
		{"no bytes at the end", 16, 0, true},
		{"one byte too many", 8, 9, false},
		{"beyond the end", 17, 0, false},
		{"an offset that wraps around", math.MaxUint64 - 3, 8, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			mem := Bytes(make([]byte, 16))
			for op, err := range map[string]error{
				"ReadAt":  mem.ReadAt(make([]byte, c.n), c.off),
				"WriteAt": mem.WriteAt(make([]byte, c.n), c.off),
			} {
				if (err == nil) != c.ok || err != nil && !errors.Is(err, ErrMemory) {
					t.Errorf("%s of %d bytes at %d: %v", op, c.n, c.off, err)
				}
			}
		})
	}
}

func TestBytesReadAtReturnsWrittenBytes(t *testing.T) {
	mem := Bytes(make([]byte, 16))
	must.Do(t, mem.WriteAt([]byte{1, 2, 3}, 13))
	got := make([]byte, 4)
	if err := mem.ReadAt(got, 12); err != nil || !bytes.Equal(got, []byte{0, 1, 2, 3}) {
		t.Errorf("ReadAt = %v, %v", got, err)
	}
	if mem.Len() != 16 {
		t.Errorf("Len = %d", mem.Len())
	}
}

func TestBytesUpdateReturnsOldWord(t *testing.T) {
	mem := Bytes(make([]byte, 16))
	mem[8] = 0x88
	mem[15] = 0x11
	old, err := mem.Update(8, func(v uint64) uint64 { return v + 1 })
	if err != nil || old != 0x1100000000000088 {
		t.Fatalf("Update = %#x, %v", old, err)
	}
	if mem[8] != 0x89 || mem[15] != 0x11 {
		t.Errorf("word after the update: % x", mem[8:])
	}
	for _, off := range []uint64{9, 16, math.MaxUint64 - 7} {
		called := false
		if _, err := mem.Update(off, func(v uint64) uint64 { called = true; return v }); !errors.Is(err, ErrMemory) || called {
			t.Errorf("Update at %d of 16: %v, function called: %v", off, err, called)
		}
	}
}

func TestBytesSliceIsInPlace(t *testing.T) {
	mem := Bytes(make([]byte, 16))
	var s Slicer = mem
	part := s.Slice(4, 8)
	if len(part) != 8 || cap(part) != 8 {
		t.Fatalf("Slice(4, 8) has length %d and capacity %d", len(part), cap(part))
	}
	part[0] = 7
	if mem[4] != 7 {
		t.Error("Slice returned a copy")
	}
	if empty := s.Slice(16, 0); empty == nil {
		t.Error("an empty slice at the end is nil")
	}
	for _, c := range [][2]uint64{{9, 8}, {17, 0}, {0, 17}, {math.MaxUint64, 2}, {2, math.MaxUint64}} {
		if s.Slice(c[0], c[1]) != nil {
			t.Errorf("Slice(%d, %d) exceeds the memory", c[0], c[1])
		}
	}
}

type testQP struct{ num uint32 }

func add(t *testing.T, table *QPTable[testQP]) *testQP {
	t.Helper()
	num := must.Get(table.Next())(t)
	q := &testQP{num}
	table.Add(q)
	return q
}

func TestQPNumbersAreAssignedInTurn(t *testing.T) {
	table := NewQPTable[testQP](0x700, 3)
	a := add(t, &table)
	table.Remove(a.num)
	b, c, d := add(t, &table), add(t, &table), add(t, &table)
	if got := fmt.Sprintf("%x %x %x %x", a.num, b.num, c.num, d.num); got != "700 701 702 700" {
		t.Errorf("numbers %s", got)
	}
	must.Fail(t, "a fourth QP of three", must.Err(table.Next()), verbs.ErrNoMemory)
	table.Remove(d.num)
	if q := add(t, &table); q.num != 0x700 {
		t.Errorf("number %x, want the free one", q.num)
	}
	table.Remove(c.num)
	for _, num := range []uint32{0, 0x6ff, 0x702, 0x703, 1<<32 - 1} {
		if q := table.At(num); q != nil {
			t.Errorf("QP %x exists", num)
		}
	}
}

// A number maps to its QP until it is removed, and is not assigned to another QP before.
func TestQPTableMatchesMap(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	table := NewQPTable[testQP](2, 20)
	live := map[uint32]*testQP{}
	for range 5000 {
		num := 2 + rng.Uint32N(20)
		switch q := live[num]; {
		case q != nil:
			table.Remove(num)
			delete(live, num)
		case len(live) < 20:
			q := add(t, &table)
			if live[q.num] != nil {
				t.Fatalf("number %d is assigned twice", q.num)
			}
			live[q.num] = q
		}
		for num := range uint32(24) {
			if got := table.At(num); got != live[num] {
				t.Fatalf("number %d is %v, want %v", num, got, live[num])
			}
		}
	}
}
