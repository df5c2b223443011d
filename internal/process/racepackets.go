//go:build race

package process

import (
	"runtime"
	"unsafe"
)

// packets orders the accesses of sender and receiver: a send happens before the receipt of
// its answer. Raw system calls and shared memory lack the happens-before edges of
// syscall.Write and syscall.Read. As in package syscall, one variable is used for all
// packets, because an answer may arrive on another path.
var packets byte

// RaceSend tells the race detector that earlier accesses to memory happen before the receipt
// of a packet. Call it before the packet is sent or published in shared memory.
func RaceSend() { runtime.RaceReleaseMerge(unsafe.Pointer(&packets)) }

// RaceReceived tells the race detector that accesses before earlier calls of RaceSend happen
// before later accesses here. Call it after a packet was received or found in shared memory.
func RaceReceived() { runtime.RaceAcquire(unsafe.Pointer(&packets)) }
