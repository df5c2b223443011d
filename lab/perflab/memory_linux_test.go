//go:build !race

package perflab

import "testing"

// TestIdleHostMemory is not built with the race detector: its shadow memory is resident
// memory of the process.
func TestIdleHostMemory(t *testing.T) {
	t.Parallel()
	for name := range deviceKinds {
		mb, err := devices{newMachine(t), name}.IdleMB(t.Context())
		if err != nil || mb > 40 {
			t.Errorf("%s: an idle host holds %.1f MB, want at most 40: %v", name, mb, err)
		}
	}
}
