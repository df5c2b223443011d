package perflab

import (
	"fmt"
	"time"
)

// RawTCPStreamConfig configures [RawTCPStream], which measures plain TCP sockets as
// the baseline for iWARP devices. It shares no code with them.
type RawTCPStreamConfig struct {
	// Bytes is the message size. Messages over 64 KiB are sent in chunks of 64 KiB;
	// up to 16 shorter ones share a system call.
	Bytes int
	// Work adds the work of a device without hardware: the sender copies each
	// message and appends a CRC32C, the receiver checks it and copies the message
	// to application memory.
	Work bool
	// Duration is how long the sender sends.
	Duration time.Duration
}

// RawTCPPingPongConfig configures [RawTCPPingPong].
type RawTCPPingPongConfig struct {
	Bytes  int // of a message
	Rounds int
	// Block makes both sides block in recv. Otherwise they spin on non-blocking
	// sockets.
	Block bool
}

const (
	// chunkMax is the maximum size of a send, and burst the maximum number of
	// messages in it.
	chunkMax = 64 << 10
	burst    = 16
	// memoryBytes is the application memory of each side, used as a ring.
	memoryBytes = 1 << 20
	crcBytes    = 4
	// spinLimit is the number of polls before a side of a stream sleeps, to give up
	// the CPU.
	spinLimit = 64
	// tripsPerSample is the number of round trips that are timed together, to hide
	// the cost of reading the clock.
	tripsPerSample = 50
	// ioTimeout is how long a side waits for the other.
	ioTimeout = 20 * time.Second
)

func (c RawTCPStreamConfig) check() error {
	if c.Bytes < 1 || c.Duration <= 0 {
		return fmt.Errorf("TCP stream: messages of %d bytes for %v", c.Bytes, c.Duration)
	}
	return nil
}

func (c RawTCPPingPongConfig) check() error {
	if c.Bytes < 1 || c.Rounds < 1 {
		return fmt.Errorf("TCP ping-pong: %d rounds of %d bytes", c.Rounds, c.Bytes)
	}
	return nil
}
