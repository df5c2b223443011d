//go:build !linux

package process

// UsedCPU is only supported on Linux.
func UsedCPU() (CPUUsage, bool) { return CPUUsage{}, false }

// SampleCPU is only supported on Linux.
func SampleCPU() (CPUSample, bool) { return CPUSample{}, false }
