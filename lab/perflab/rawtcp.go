package perflab

import (
	"fmt"
	"time"
)

// RawTCPStreamConfig configures [RawTCPStream], which measures TCP between two hosts with
// bare sockets: the limit for devices that speak iWARP. It shares no code with them.
type RawTCPStreamConfig struct {
	// Bytes are those of a message. One that is longer than 64 KiB is cut into
	// pieces of that size; of shorter ones up to 16, if they are no more than that
	// together, leave with one system call.
	Bytes int
	// Work has the sender copy each message or piece from application memory to
	// where it is sent from and append its CRC32c, and the receiver check that and
	// copy it to application memory: what a device does that has no hardware.
	Work bool
	// Duration is how long the sender sends.
	Duration time.Duration
}

// RawTCPPingPongConfig configures [RawTCPPingPong].
type RawTCPPingPongConfig struct {
	Bytes  int // of a message
	Rounds int
	// Block has both sides sleep in recv. Otherwise they spin on sockets that do
	// not block.
	Block bool
}

const (
	// pieceMax is the most that is worked on and sent at a time, and burst how many
	// messages that may be.
	pieceMax = 64 << 10
	burst    = 16
	// memoryBytes is how much application memory there is on each side: messages
	// go round in it.
	memoryBytes = 1 << 20
	crcBytes    = 4
	// spinsMax is how often a side of a stream looks in vain before it sleeps: what
	// is awaited mostly comes within microseconds, and if not, the other side may
	// need the processor.
	spinsMax = 64
	// turns is how many round trips are timed as one, so that reading the clock is
	// no part of the result.
	turns = 50
	// patience is how long either side waits for the other.
	patience = 20 * time.Second
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
