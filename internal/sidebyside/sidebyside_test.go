package sidebyside

import (
	"os"
	"sync"
	"testing"
)

const many = 40 // more than the processors of machines that this runs on

func TestMain(m *testing.M) {
	Tests(many)
	os.Exit(m.Run())
}

// Each of them waits for all others, and would for ever if they ran in turn.
func TestTestsWaitForEachOther(t *testing.T) {
	var all sync.WaitGroup
	all.Add(many)
	for range many {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			all.Done()
			all.Wait()
		})
	}
}
