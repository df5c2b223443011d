// Package goroutine tells goroutines apart, so that a value that belongs to one can
// refuse calls by others. It reads the register or thread-local word in which Go keeps
// the running goroutine, which costs about a nanosecond.
package goroutine

// Self returns a number that no other goroutine has as long as the caller lives; 0 where
// it is not known, which is on processors other than amd64 and arm64.
func Self() uintptr { return self() }
