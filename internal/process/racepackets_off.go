//go:build !race

package process

// RaceSend must be called before a packet is sent or published in shared memory.
func RaceSend() {}

// RaceReceived must be called after a packet was received or found in shared memory.
func RaceReceived() {}
