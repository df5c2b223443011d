//go:build race

package goruntime

import (
	"runtime"
	"unsafe"
)

var packets byte

// RaceSend must be called before a packet is sent or published in shared memory.
func RaceSend() { runtime.RaceReleaseMerge(unsafe.Pointer(&packets)) }

// RaceReceived must be called after a packet was received or found in shared memory.
func RaceReceived() { runtime.RaceAcquire(unsafe.Pointer(&packets)) }
