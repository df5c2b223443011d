package perflab

import (
	"net/netip"
	"time"
)

// RawEndpoint says where a measurement of plain sockets opens a socket.
type RawEndpoint struct {
	// NetNS is the descriptor of the network namespace of the socket; 0 means the
	// process's own.
	NetNS int
	// Addr is the address to bind. Port 0 lets the kernel choose.
	Addr netip.AddrPort
	// CPU is the processor, counted from 1, on which the goroutine of the socket runs; 0
	// means any. Wake-ups between processors take three times as long as on one, so compare
	// only measurements that are bound alike.
	CPU int
}

// RawStreamConfig configures [RawTCPStream] and [RawUDPStream].
type RawStreamConfig struct {
	// Bytes is the size of a TCP message or of the payload of a UDP datagram. TCP messages
	// over 64 KiB are sent in chunks of 64 KiB; up to 16 shorter ones share a system call.
	Bytes int
	// Work adds the work of a device without hardware: the sender copies each message and
	// appends a CRC, the receiver checks it and copies the message to application memory.
	Work bool
	// Duration is how long the sender sends.
	Duration time.Duration
}

// RawPingPongConfig configures [RawTCPPingPong] and [RawUDPPingPong].
type RawPingPongConfig struct {
	Bytes  int // of a message
	Rounds int // round trips, rounded down to whole samples, at least one
	// Block makes both sides block in recv. Otherwise they spin on non-blocking
	// sockets.
	Block bool
}

const (
	// chunkMax is the maximum size of a TCP send, and burst the maximum number of
	// messages in it.
	chunkMax = 64 << 10
	burst    = 16
	// memoryBytes is the application memory of each side of a stream, used as a ring.
	memoryBytes = 1 << 20
	crcBytes    = 4
	// spinLimit is the number of polls before a side of a TCP stream sleeps, to give up
	// the CPU.
	spinLimit = 64
	// tripsPerSample is the number of round trips that are timed together, to hide
	// the cost of reading the clock.
	tripsPerSample = 50
	// ioTimeout is how long a side waits for the other.
	ioTimeout = 20 * time.Second
)
