package nic

import (
	"math/rand/v2"
	"testing"
)

// The FIFO is compared with a slice, also when it grows after its ring has wrapped.
func TestFIFOMatchesSlice(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var q FIFO[int]
	var want []int
	for i := range 20000 {
		switch most := 1 + i/200; {
		case rng.IntN(1000) == 0:
			q.Release()
			want = nil
		case len(want) < most && rng.IntN(2) == 0:
			q.Push(i)
			want = append(want, i)
		default:
			v, ok := q.Pop()
			if ok != (len(want) > 0) || ok && v != want[0] {
				t.Fatalf("step %d: %d, %v of %d", i, v, ok, want)
			}
			want = want[min(1, len(want)):]
		}
		if q.Len() != len(want) {
			t.Fatalf("step %d: %d of %d", i, q.Len(), len(want))
		}
		if len(want) == 0 {
			continue
		}
		if k := rng.IntN(len(want)); *q.At(k) != want[k] || *q.First() != want[0] || *q.Last() != want[len(want)-1] {
			t.Fatalf("step %d: %d %d %d of %d", i, *q.First(), *q.At(k), *q.Last(), want)
		}
	}
}

func TestFIFOKeepsNoReferencesAndDoesNotAllocate(t *testing.T) {
	var q FIFO[*int]
	round := func() {
		for range 20 {
			q.Push(new(int))
		}
		for range 20 {
			q.Pop()
		}
	}
	round()
	for i := range q.slots {
		if q.slots[i] != nil {
			t.Fatal("the FIFO references a popped element")
		}
	}
	v := new(int)
	if n := testing.AllocsPerRun(10, func() {
		for range 20 {
			q.Push(v)
		}
		for range 20 {
			q.Pop()
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// The vector of the paper that defined SipHash, and one of another length.
func TestSipHashVectors(t *testing.T) {
	var key [16]byte
	var in [8]byte
	for i := range key {
		key[i] = byte(i)
	}
	for i := range in {
		in[i] = byte(i)
	}
	if got := SipHash(&key, nil); got != 0x726fdb47dd0e0e31 {
		t.Errorf("of no octets: %#x", got)
	}
	if got := SipHash(&key, in[:]); got != 0x93f5f5799a932462 {
		t.Errorf("of eight octets: %#x", got)
	}
}
