package testutil

import (
	"sync"
	"testing"
)

func TestPartsCoverEachConfigurationOnce(t *testing.T) {
	const configurations, parts = 1000, 61
	var taken [configurations]int
	for i := range parts {
		p := &Part{i, parts}
		for c := range configurations {
			if p.Has(c) {
				taken[c]++
			}
		}
	}
	for c, n := range taken {
		if n != 1 {
			t.Errorf("configuration %d is in %d parts", c, n)
		}
	}
}

func TestPartWithoutFlagHasAllConfigurations(t *testing.T) {
	p := new(Part)
	if p.Given() || !p.Has(0) || !p.Has(7) || p.String() != "" {
		t.Errorf("got %+v", p)
	}
}

func TestPartSet(t *testing.T) {
	for text, want := range map[string]Part{"0/1": {0, 1}, "7/61": {7, 61}, "60/61": {60, 61}} {
		var p Part
		if err := p.Set(text); err != nil || p != want || p.String() != text || !p.Given() {
			t.Errorf("%s: %+v, %v", text, p, err)
		}
	}
	for _, text := range []string{"", "7", "7/", "/61", "61/61", "-1/61", "1/0", "1/2/3", "a/b"} {
		if err := new(Part).Set(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

const limit = 40 // more than most machines have CPUs

func TestMain(m *testing.M) {
	SetParallel(limit)
	NamespaceMain(m)
}

// Every subtest waits for all others, and blocks forever unless they run at once.
func TestParallelTestsRunAtOnce(t *testing.T) {
	var all sync.WaitGroup
	all.Add(limit)
	for range limit {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			all.Done()
			all.Wait()
		})
	}
}
