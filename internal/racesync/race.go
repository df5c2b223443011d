//go:build race

package racesync

import (
	"runtime"
	"unsafe"
)

var packets byte

// Send must be called before a packet is sent or published in shared memory.
func Send() { runtime.RaceReleaseMerge(unsafe.Pointer(&packets)) }

// Received must be called after a packet was received or found in shared memory.
func Received() { runtime.RaceAcquire(unsafe.Pointer(&packets)) }
