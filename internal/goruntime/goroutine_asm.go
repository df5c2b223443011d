//go:build amd64 || arm64

package goruntime

func self() uintptr
