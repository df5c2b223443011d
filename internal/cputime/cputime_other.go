//go:build !linux

package cputime

// Self is only supported on Linux.
func Self() (Usage, bool) { return Usage{}, false }

// Now is only supported on Linux.
func Now() (Sample, bool) { return Sample{}, false }
