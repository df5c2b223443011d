//go:build !amd64 && !arm64

package process

// self returns 0: the g pointer is unknown on this architecture.
func self() uintptr { return 0 }
