// Package goruntime gives access to parts of the Go runtime that have no public function:
// the identity of the running goroutine, and memory order for the race detector.
//
// [Goroutine] detects calls from the wrong goroutine. It reads the g pointer of the Go
// runtime, in about a nanosecond.
//
// [RaceSend] and [RaceReceived] tell the race detector that packets order memory accesses: a
// send happens before the receipt of its answer. Raw system calls and shared memory lack the
// happens-before edges of syscall.Write and syscall.Read. As in package syscall, one
// variable is used for all packets, because an answer may arrive on another path. Without
// the race detector the functions are empty.
package goruntime

// Goroutine returns a number that is unique among running goroutines. It returns 0 on
// architectures other than amd64 and arm64.
func Goroutine() uintptr { return self() }
