//go:build !linux

package cputime

// Self reports false: only Linux tells.
func Self() (Usage, bool) { return Usage{}, false }

// Now reports false: only Linux tells.
func Now() (Sample, bool) { return Sample{}, false }
