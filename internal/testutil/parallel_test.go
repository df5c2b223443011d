package testutil

import (
	"sync"
	"testing"
)

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
