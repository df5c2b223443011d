//go:build !linux

package drive

import "runtime"

// yield offers the processor to other goroutines.
func yield() { runtime.Gosched() }
