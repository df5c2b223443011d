//go:build !linux

package mpihost

// CPUs fails: CPU affinity needs Linux.
func CPUs() ([]int, error) { return nil, errLinux }

func bindToCPU(int) error { return errLinux }
