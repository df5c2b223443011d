package bench

import "testing"

func TestAvailableMemory(t *testing.T) {
	if n, err := AvailableMemory(); err != nil || n < 1<<20 || n > 1<<50 {
		t.Errorf("%d bytes are available, %v", n, err)
	}
}
