package core

import (
	"testing"

	"github.com/fabrictest/fabrictest/verbs"
)

func TestScrambledNamesAreAPermutation(t *testing.T) {
	for secret, stride := range map[uint64]uint32{0x0123456789abcdef: 1, 0: 97, 1: 97, ^uint64(0): 97} {
		table := NewTable(4)
		table.Scramble(secret)
		seen := make([]bool, MaxEntries+1)
		for i := uint32(0); i <= MaxEntries; i += stride {
			name := table.names.scramble(i)
			if name > MaxEntries || seen[name] {
				t.Fatalf("secret %#x: index %d has name %#x, which is taken or too long", secret, i, name)
			}
			seen[name] = true
			if back := table.names.unscramble(name); back != i {
				t.Fatalf("secret %#x: name %#x of index %d leads to %d", secret, name, i, back)
			}
		}
		if table.names.scramble(0) != 0 {
			t.Errorf("secret %#x: key 0 could become valid", secret)
		}
	}
}

func TestScrambledKeysWork(t *testing.T) {
	table := NewTable(1 << 10)
	table.Scramble(0x5eed_5eed_5eed_5eed)
	const all = verbs.AccessLocalWrite | verbs.AccessRemoteRead | verbs.AccessMWBind
	var regions []*Region
	steps := map[uint32]int{}
	for i := range 200 {
		r, err := table.Register(1, make(Bytes, 16), 0, false, all)
		if err != nil {
			t.Fatal(err)
		}
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
		if _, _, err := table.Remote(r.Key, 1, 7, r.Addr, 16, verbs.AccessRemoteRead); err != nil {
			t.Fatalf("key %#x: %v", r.Key, err)
		}
		if _, _, err := table.Remote(r.Key^0x0100, 1, 7, r.Addr, 16, verbs.AccessRemoteRead); err == nil {
			t.Fatalf("key %#x opens the region of %#x", r.Key^0x0100, r.Key)
		}
	}
	w, err := table.AllocWindow(1, verbs.MWType2)
	if err != nil {
		t.Fatal(err)
	}
	key := w.Key + 1
	if err := table.Bind(w, Bind{Region: regions[0], Addr: regions[0].Addr, Len: 8, Access: verbs.AccessRemoteRead, Key: key, PD: 1, QPN: 7}); err != nil {
		t.Fatal(err)
	}
	if err := table.Invalidate(key, 1, 7); err != nil {
		t.Fatal(err)
	}
	if !table.FreeWindow(w) {
		t.Error("the window is not there")
	}
	for _, r := range regions {
		if err := table.Deregister(r); err != nil {
			t.Fatal(err)
		}
	}
}

func TestScrambleComesFirst(t *testing.T) {
	table := NewTable(4)
	if _, err := table.Register(1, make(Bytes, 1), 0, false, 0); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if recover() == nil {
			t.Error("Scramble took the keys from regions that have them")
		}
	}()
	table.Scramble(1)
}
