package p2p

import "math/bits"

// SendProtocol says how a message was sent.
type SendProtocol uint8

// The protocols.
const (
	Eager SendProtocol = iota
	Rendezvous
	numSendProtocols
)

// Sizes counts messages by size, in powers of two.
type Sizes struct {
	Messages uint64
	Bytes    uint64
	BySize   [40]uint64 // 0 B, 1 B, 2–3 B, 4–7 B, …
}

// add counts a message of n bytes. BySize is by the bit length of n: 0, 1, 2–3, 4–7, … bytes.
func (s *Sizes) add(n int) {
	s.Messages++
	s.Bytes += uint64(n)
	s.BySize[min(bits.Len(uint(n)), len(s.BySize)-1)]++
}

// Stats are the statistics of an engine.
type Stats struct {
	Sent            [numSendProtocols]Sizes
	ControlMessages [16]uint64 // control messages sent, by wire.Kind
	CreditFallbacks uint64     // small messages sent by rendezvous for lack of credits

	Unexpected      uint64
	UnexpectedBytes uint64
	MaxUnexpected   int    // longest unexpected queue
	MaxPosted       int    // longest posted queue
	NotReady        uint64 // ready sends without a posted receive

	EarlyProgress      uint64
	Advertisements     uint64 // RTRs of advertised receives
	RTRsReceived       uint64 // RTRs received
	RTRsUsed           uint64
	RTRsDropped        uint64
	RTRsCrossed        uint64 // RTRs dropped because an RTS had crossed them
	Mispredicted       uint64 // RTRs sent for messages that came eagerly
	SpeculationStopped uint64
	SpeculationResumed uint64
	// StopUsage is the largest share of used RTRs after which they were stopped, and ResumeUsage the
	// smallest share that would have been used after which they were resumed, in per cent.
	StopUsage, ResumeUsage float64
}

// recordStop records in StopUsage how many of the last n RTRs were used when they were stopped.
func (s *Stats) recordStop(used, n int) {
	s.StopUsage = max(s.StopUsage, 100*float64(used)/float64(n))
}

// recordResume records in ResumeUsage how many of the last n messages would have used an RTR when RTRs
// were resumed. SpeculationResumed already counts that.
func (s *Stats) recordResume(wouldHaveUsed, n int) {
	usage := 100 * float64(wouldHaveUsed) / float64(n)
	if s.SpeculationResumed == 1 || usage < s.ResumeUsage {
		s.ResumeUsage = usage
	}
}
