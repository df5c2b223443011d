package nic

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

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
	must.Fail(t, "a fourth of three", must.Err(table.Next()), verbs.ErrNoMemory)
	table.Remove(d.num)
	if q := add(t, &table); q.num != 0x700 {
		t.Errorf("number %x, want the one that is free", q.num)
	}
	table.Remove(c.num)
	for _, num := range []uint32{0, 0x6ff, 0x702, 0x703, 1<<32 - 1} {
		if q := table.At(num); q != nil {
			t.Errorf("there is a QP %x", num)
		}
	}
}

// A number maps to its QP until it is removed, and is never assigned twice at a
// time.
func TestQPTableAgreesWithAMap(t *testing.T) {
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
				t.Fatalf("number %d is given twice", q.num)
			}
			live[q.num] = q
		}
		for num := range uint32(24) {
			if got := table.At(num); got != live[num] {
				t.Fatalf("number %d names %v, want %v", num, got, live[num])
			}
		}
	}
}
