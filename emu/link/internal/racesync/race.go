//go:build race

package racesync

import (
	"runtime"
	"unsafe"
)

var packets byte

// Send is called before each system call that sends.
func Send() { runtime.RaceReleaseMerge(unsafe.Pointer(&packets)) }

// Received is called after each system call that brought something.
func Received() { runtime.RaceAcquire(unsafe.Pointer(&packets)) }
