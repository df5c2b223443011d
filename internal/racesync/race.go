//go:build race

package racesync

import (
	"runtime"
	"unsafe"
)

var packets byte

// Send is called before each system call that sends, and before a packet is published in
// shared memory.
func Send() { runtime.RaceReleaseMerge(unsafe.Pointer(&packets)) }

// Received is called after each system call that brought something, and after a packet was
// found in shared memory.
func Received() { runtime.RaceAcquire(unsafe.Pointer(&packets)) }
