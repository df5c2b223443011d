//go:build !linux

package host

import "errors"

// AvailableMemory is how many bytes programs can still have without the host paging.
func AvailableMemory() (uint64, error) { return 0, errors.ErrUnsupported }
