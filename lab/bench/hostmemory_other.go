//go:build !linux

package bench

import "errors"

// AvailableMemory is not supported.
func AvailableMemory() (uint64, error) { return 0, errors.ErrUnsupported }
