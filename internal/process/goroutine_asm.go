//go:build amd64 || arm64

package process

func self() uintptr
