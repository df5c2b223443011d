//go:build !race

package process

// RaceSend does nothing without the race detector. Call it before a packet is sent or
// published in shared memory.
func RaceSend() {}

// RaceReceived does nothing without the race detector. Call it after a packet was received or
// found in shared memory.
func RaceReceived() {}
