package p2p

import "math/bits"

// Way is how a message went.
type SendProtocol uint8

// The ways.
const (
	Eager SendProtocol = iota
	Rendezvous
	numSendProtocols
)

// Sizes counts messages by the power of two that their size is at least.
type Sizes struct {
	Messages uint64
	Bytes    uint64
	BySize   [40]uint64 // 0 B, 1 B, 2–3 B, 4–7 B, …
}

func (s *Sizes) add(n int) {
	s.Messages++
	s.Bytes += uint64(n)
	s.BySize[min(bits.Len(uint(n)), len(s.BySize)-1)]++
}

// Stats counts what an engine did.
type Stats struct {
	Sent     [numSendProtocols]Sizes
	Words    [16]uint64 // sent without data, by wire.Kind
	FellBack uint64     // small messages that went by rendezvous for want of room

	Unexpected      uint64
	UnexpectedBytes uint64
	MaxUnexpected   int // in the queue at once
	MaxPosted       int
	NotReady        uint64 // ready sends that found no receive

	EarlyProgress      uint64
	RTRsCame           uint64
	RTRsUsed           uint64
	RTRsDropped        uint64
	Crossed            uint64 // of those dropped: an RTS was under way
	Mispredicted       uint64 // RTRs of ours for what came eagerly
	SpeculationStopped uint64
	SpeculationResumed uint64
}
