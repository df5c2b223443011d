//go:build amd64 || arm64

package process

// self returns the g pointer of the Go runtime.
func self() uintptr
