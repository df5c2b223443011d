//go:build !race

package perflab

import "testing"

// TestIdleHostMemory is not built with the race detector, whose shadow memory would count.
func TestIdleHostMemory(t *testing.T) {
	t.Parallel()
	for name := range deviceKinds {
		mb, err := devices{newTestbed(t), name}.IdleMB(t.Context())
		if err != nil || mb > 40 {
			t.Errorf("%s: an idle host holds %.1f MB, want at most 40: %v", name, mb, err)
		}
	}
}
