//go:build !linux

package process

import (
	"errors"
	"time"
)

// UsedCPU is only supported on Linux.
func UsedCPU() (CPUUsage, bool) { return CPUUsage{}, false }

// UsedCPUOf is only supported on Linux.
func UsedCPUOf(int) (CPUUsage, bool) { return CPUUsage{}, false }

// SampleCPU is only supported on Linux.
func SampleCPU() (CPUSample, bool) { return CPUSample{}, false }

// UsableCPUs is only supported on Linux.
func UsableCPUs() ([]int, error) { return nil, errors.ErrUnsupported }

// BindToCPU is only supported on Linux.
func BindToCPU(int) error { return errors.ErrUnsupported }

// UsedResources is only supported on Linux.
func UsedResources() (cpu time.Duration, peakMemory uint64, ok bool) { return 0, 0, false }
