//go:build !linux

package nslab

import "time"

// monotonic is not used without namespaces.
func monotonic() time.Duration { return 0 }
