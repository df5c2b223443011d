package nic

import (
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// keysOf registers n regions and returns them and their keys.
func keysOf(t *testing.T, table *Table, n int) (keys []uint32, regions []*Region) {
	t.Helper()
	for range n {
		r := must.Get(table.Register(1, make(Bytes, 16), 0, false, verbs.AccessRemoteRead))(t)
		keys, regions = append(keys, r.Key), append(regions, r)
	}
	return keys, regions
}

// repeats is how often the most frequent distance between keys that are lag apart occurs.
func repeats(keys []uint32, lag int) int {
	most, steps := 0, map[uint32]int{}
	for i := lag; i < len(keys); i++ {
		step := keys[i] - keys[i-lag]
		steps[step]++
		most = max(most, steps[step])
	}
	return most
}

func TestScrambledKeysHaveNoPattern(t *testing.T) {
	for _, churn := range []bool{false, true} {
		table := NewTable(1 << 10)
		table.Scramble([16]byte{1})
		var keys []uint32
		for range 500 {
			k, r := keysOf(t, table, 1)
			keys = append(keys, k...)
			if churn {
				must.Do(t, table.Deregister(r[0]))
			}
		}
		for lag := 1; lag <= 64; lag++ {
			if n := repeats(keys, lag); n > 2 {
				t.Errorf("deregistered at once %v: %d keys are the same step after the key %d before them", churn, n, lag)
			}
		}
	}
}

// A new region does not get the key index of a deregistered one.
func TestScrambledKeyIndexesAreNotReused(t *testing.T) {
	table := NewTable(4)
	table.Scramble([16]byte{1})
	seen := map[uint32]bool{}
	for range 1000 {
		k, r := keysOf(t, table, 1)
		if index := k[0] >> keyIndexShift; seen[index] || index == 0 {
			t.Fatalf("key %#x: its index was used before", k[0])
		} else {
			seen[index] = true
		}
		must.Do(t, table.Deregister(r[0]))
		if _, _, err := table.Remote(k[0], TargetQP{1, 7}, r[0].Addr, 16, verbs.AccessRemoteRead); err == nil {
			t.Fatalf("key %#x gives access to a deregistered region", k[0])
		}
	}
	if len(table.keys.index) != 0 {
		t.Errorf("%d indexes are kept without a region", len(table.keys.index))
	}
}

func TestKeysDependOnSecret(t *testing.T) {
	var all [2][]uint32
	for i := range all {
		table := NewTable(1 << 10)
		table.Scramble([16]byte{15: byte(i + 1)})
		all[i], _ = keysOf(t, table, 100)
	}
	for i, k := range all[0] {
		if slices.Contains(all[1], k) {
			t.Errorf("key %d, %#x, occurs with another secret too", i, k)
		}
	}
}

func TestScrambledKeysResolveAndAreUnpredictable(t *testing.T) {
	table := NewTable(1 << 10)
	table.Scramble([16]byte{5, 0xee, 0xd})
	const all = verbs.AccessLocalWrite | verbs.AccessRemoteRead | verbs.AccessMWBind
	var regions []*Region
	steps := map[uint32]int{}
	for i := range 200 {
		r := must.Get(table.Register(1, make(Bytes, 16), 0, false, all))(t)
		if i > 0 {
			steps[r.Key-regions[i-1].Key]++
		}
		regions = append(regions, r)
	}
	for step, n := range steps {
		if n > 10 {
			t.Errorf("%d of 200 keys are %#x after the one before: they can be predicted", n, step)
		}
	}
	for _, r := range regions {
		if _, _, err := table.Remote(r.Key, TargetQP{1, 7}, r.Addr, 16, verbs.AccessRemoteRead); err != nil {
			t.Fatalf("key %#x: %v", r.Key, err)
		}
		if _, _, err := table.Remote(r.Key^0x0100, TargetQP{1, 7}, r.Addr, 16, verbs.AccessRemoteRead); err == nil {
			t.Fatalf("key %#x gives access to the region of %#x", r.Key^0x0100, r.Key)
		}
	}
	w := must.Get(table.AllocWindow(1, verbs.MWType2))(t)
	key := w.Key + 1
	must.Do(t, table.Bind(w, Bind{Region: regions[0], Addr: regions[0].Addr, Len: 8, Access: verbs.AccessRemoteRead, Key: key, PD: 1, QPN: 7}))
	must.Do(t, table.Invalidate(key, 1, 7))
	if !table.FreeWindow(w) {
		t.Error("FreeWindow did not find the window")
	}
	for _, r := range regions {
		must.Do(t, table.Deregister(r))
	}
}

func TestScrambleNeedsEmptyTable(t *testing.T) {
	table := NewTable(4)
	must.Get(table.Register(1, make(Bytes, 1), 0, false, 0))(t)
	defer func() {
		if recover() == nil {
			t.Error("Scramble of a table with regions did not panic")
		}
	}()
	table.Scramble([16]byte{1})
}
