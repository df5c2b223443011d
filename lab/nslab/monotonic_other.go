//go:build !linux

package nslab

import "time"

// monotonic is never asked where there are no namespaces.
func monotonic() time.Duration { return 0 }
