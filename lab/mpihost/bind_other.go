//go:build !linux

package mpihost

// CPUs says that nobody can be kept to a processor here.
func CPUs() ([]int, error) { return nil, errLinux }

func bind(int) error { return errLinux }
